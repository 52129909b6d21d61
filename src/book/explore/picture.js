// Shows an explorer's picture: `live.py` sends the still part once and the moving part at every move.
const LOST = "This picture has lost its kernel. Run this cell again to move it.";

function part(tag, style, text) {
  const node = document.createElement(tag);
  node.setAttribute("style", style);
  node.textContent = text;
  return node;
}

function render({ model, el }) {
  const holder = part("div", "background:#fff;border-radius:4px", "");
  holder.innerHTML = model.get("svg");
  const picture = holder.querySelector("svg");
  picture.setAttribute("style", "display:block;width:100%;height:auto");
  const says = part("div", "line-height:1.4;font-size:1.1em;min-height:2.8em", "");
  says.setAttribute("role", "status");
  el.replaceChildren(part("div", "font-weight:bold;margin:2px 0", model.get("title")), holder, says);
  const show = () => {
    const { moving, says: words } = model.get("state");
    if (moving === undefined) return;
    picture.lastElementChild.innerHTML = moving;
    picture.setAttribute("aria-label", `${model.get("alt")} ${words}`);
    picture.dataset.moves = Number(picture.dataset.moves ?? 0) + 1;
    says.textContent = words;
  };
  const lost = () => { says.textContent = LOST; };
  show();
  model.on("change:state", show);
  model.on("comm_live_update", lost);
  return () => { model.off("change:state", show); model.off("comm_live_update", lost); };
}

export default { render };
