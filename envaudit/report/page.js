"use strict";
// Draws the strip of all nodes and the drawer of one. Whatever a node said reaches the page as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const nodes = data.nodes;
  const drawer = document.getElementById("drawer");
  const classes = {
    "E": "error", "?": "incomplete", "W": "warning", "I": "info",
    "≠": "differs", "·": "well", "–": "none", " ": "unseen",
  };
  const places = new Map(nodes.map((node, place) => [node.n, place]));
  let cameFrom = null;

  function element(name, className, ...children) {
    const made = document.createElement(name);
    if (className) made.className = className;
    made.append(...children);
    return made;
  }

  const cell = (letter) => element("i", `cell ${classes[letter] || "unseen"}`, letter);
  const text = (place) => data.texts[place];

  function link(className, target, ...children) {
    const made = element("a", className, ...children);
    made.href = target;
    return made;
  }

  function part(heading, child) {
    drawer.append(element("h3", "", heading), child);
  }

  function table(rows) {
    return element("table", "", element("tbody", "", ...rows.map(
      (cells) => element("tr", "", ...cells.map((each) => element("td", "", each))))));
  }

  function findingsOf(node) {
    return element("ul", "", ...node.f.map((place) => {
      const [letter, rule, message, hint] = data.findings[place];
      const item = element("li", "", cell(letter), link("", `#finding-${place}`, rule), ` ${message}`);
      if (hint) item.append(element("div", "hint", element("span", "", "Next"), hint));
      return item;
    }));
  }

  function differencesOf(node) {
    const shown = node.x.slice(0, data.most).map(([place, group]) => {
      const [path, basis, ...values] = data.drifts[place];
      const value = element("div", "value", element("code", "", values[group]));
      const cells = element("div", "", value);
      if (basis) {
        cells.append(element("div", "value reference", element("code", "", values[0]), " ",
          element("span", "who", basis)));
      }
      return [path, cells];
    });
    if (node.x.length > shown.length) shown.push(["and more", ""]);
    return table(shown);
  }

  // How many nodes have the same section; states that differ in their errors alone stand apart.
  const sharers = data.sections.map((_, place) => {
    const counts = new Map();
    nodes.forEach((node) => {
      if (node.s) counts.set(node.s[place], (counts.get(node.s[place]) || 0) + 1);
    });
    return counts;
  });

  function sectionsOf(node) {
    const rows = [];
    data.sections.forEach((name, place) => {
      const state = node.s[place];
      if (state < 0) return;
      const [status, digest, ...errors] = data.states[state];
      const others = sharers[place].get(state) - 1;
      const shared = others ? `as ${others} other${others === 1 ? "" : "s"}` : "as no other";
      const what = element("div", "", element("span", "digest", text(digest)));
      what.firstChild.title = "sha256 of the section";
      errors.forEach((error) => what.append(element("div", "", text(error))));
      rows.push([
        element("span", "", cell(node.l[place + 1]), " ", name), status,
        element("span", "who", nodes.length > 1 ? shared : ""), what,
      ]);
    });
    const made = table(rows);
    made.className = "sections";
    return made;
  }

  function show(node) {
    drawer.replaceChildren();
    const heading = element("h2", "", element("span", "", cell(node.l[0]), " ",
      element("span", "node", node.n)), link("close", "#nodes", "Close (Esc)"));
    heading.firstChild.lastChild.id = "drawer-name";
    drawer.append(heading);
    if (node.a !== undefined) drawer.append(element("p", "about", text(node.a)));
    if (node.m) {
      const [kind, why, next] = node.m.map(text);
      const gone = element("p", "", `${kind}: ${why}`);
      part("No answer", gone);
      if (next) drawer.append(element("p", "hint", element("span", "", "Next"), next));
    }
    part("Findings", node.f.length ? findingsOf(node) : element("p", "", "None."));
    if (node.x) part("Unlike the others", differencesOf(node));
    if (node.c) part("Numbers", element("ul", "", ...node.c.map((line) => element("li", "", text(line)))));
    if (node.s) part("Sections", sectionsOf(node));
    if (node.d !== undefined) part("Digest", element("p", "digest", text(node.d)));
    drawer.hidden = false;
    drawer.scrollTop = 0;
    drawer.focus({ preventScroll: true });
  }

  function choose(place) {
    document.querySelectorAll("#strip .chosen").forEach((each) => each.classList.remove("chosen"));
    if (place !== undefined && strip) strip.children[place].firstChild.classList.add("chosen");
  }

  function decoded(fragment) {
    try {
      return decodeURIComponent(fragment);
    } catch (error) {
      return fragment;  // a lone per cent sign that somebody typed
    }
  }

  function follow() {
    const match = /^#node=(.*)$/.exec(location.hash);
    const place = match ? places.get(decoded(match[1])) : undefined;
    choose(place);
    if (place === undefined) {
      drawer.hidden = true;
      const target = /^#finding-\d+$/.test(location.hash) && document.querySelector(location.hash);
      for (let each = target; each; each = each.parentElement) {
        if (each.tagName === "DETAILS") each.open = true;
      }
      if (target) target.scrollIntoView();
      return;
    }
    show(nodes[place]);
  }

  function close() {
    if (drawer.hidden) return;
    history.replaceState(null, "", location.pathname + location.search);
    drawer.hidden = true;
    choose(undefined);
    if (cameFrom && cameFrom.isConnected) cameFrom.focus({ preventScroll: true });
  }

  function find() {
    const wanted = document.getElementById("find").value.trim().toLowerCase();
    let count = 0;
    nodes.forEach((node, place) => {
      const matches = node.n.toLowerCase().includes(wanted);
      count += matches;
      strip.children[place].classList.toggle("dimmed", !matches);
    });
    document.getElementById("matches").textContent = wanted ? `${count} of ${nodes.length}` : "";
    document.querySelectorAll(".heat tbody tr").forEach((row) => {
      const names = Array.from(row.querySelectorAll("a.node"), (each) => each.textContent);
      row.hidden = !names.some((name) => name.toLowerCase().includes(wanted));
    });
  }

  let strip = null;
  if (nodes.length) {
    strip = document.getElementById("strip");
    const few = nodes.length <= 48;
    strip.classList.toggle("few", few);
    strip.append(...nodes.map((node) => {
      const letter = node.l[0];
      const square = cell(letter);
      if (few) square.textContent = `${letter} ${node.n}`;
      const made = link("", `#node=${encodeURIComponent(node.n)}`, square);
      made.title = node.n;
      return made;
    }));
    document.getElementById("overview").hidden = false;
    document.querySelector("#overview label").hidden = nodes.length < 10;
    document.getElementById("find").addEventListener("input", find);
  }
  document.addEventListener("click", (event) => {
    const target = event.target.closest("a");
    if (target && target.hash.startsWith("#node=")) cameFrom = target;
    if (target && target.classList.contains("close")) {
      event.preventDefault();
      close();
    }
  });
  addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  addEventListener("hashchange", follow);
  // A printed page has nothing to click on: what a finding folds is printed, node names are not.
  addEventListener("beforeprint", () => {
    document.querySelectorAll("#findings details").forEach((each) => { each.open = true; });
  });
  follow();
})();
