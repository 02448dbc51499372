// Browsers start no worker for a page that is read from the disk, so the search of the site runs in a frame there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      frame.srcdoc =
        "<script>postMessage = (data) => frameElement.answer(data)</script>" +
        `<script src="${script}"></script>`;
      this.started = new Promise((start) => { frame.onload = () => start(frame.contentWindow); });
      document.body.append(frame);
    }

    postMessage(data) {
      this.started.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
