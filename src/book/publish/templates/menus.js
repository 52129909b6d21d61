// The two menu buttons of the page. The themes bind their handlers to a pair that is hidden here; these work at every width.
document.addEventListener("DOMContentLoaded", () => {
  for (const side of ["primary", "secondary"]) {
    const sidebar = document.querySelector(`.bd-sidebar-${side}`);
    if (!sidebar) continue;
    const dialog = document.createElement("dialog");  // not the theme's own: its handlers would move the bar once more
    dialog.className = `menu menu-${side}`;
    document.body.append(dialog);
    const home = { parent: sidebar.parentNode, next: sidebar.nextSibling };
    const close = document.createElement("button");
    close.type = "button";
    close.className = "btn btn-sm close-menu";
    close.setAttribute("aria-label", "Close");
    close.textContent = "\u00d7";
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      home.parent.insertBefore(sidebar, home.next);
      close.remove();
      sidebar.classList.remove("in-menu");
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("a")) dialog.close();
    });
    for (const button of document.querySelectorAll(`.${side}-toggle`)) {
      button.addEventListener("click", (event) => {
        event.preventDefault();
        event.stopImmediatePropagation();
        if (dialog.open) return dialog.close();
        const at = sidebar.getBoundingClientRect(), style = getComputedStyle(sidebar);
        const shown = at.width > 0 && at.right > 0 && at.left < innerWidth && style.visibility !== "hidden";
        if (shown || document.body.classList.contains(`no-${side}`)) {
          document.body.classList.toggle(`no-${side}`);  // a wide page: the bar goes and comes
          return;
        }
        sidebar.classList.add("in-menu");
        dialog.append(close, sidebar);
        dialog.showModal();
      }, true);
    }
  }
});
// What scrolls sideways can be reached by key: formulas and pictures on a phone. The theme does the same for code and tables.
addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  const reach = () => {
    for (const part of document.querySelectorAll('mjx-container[display="true"], .cell_output, table.dataframe')) {
      if (part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
      else part.removeAttribute("tabindex");
    }
  };
  reach();
  addEventListener("resize", reach);
});
