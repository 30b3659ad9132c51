// The console without a build step: live values, plots, keys, selection. Pages work without it.
(() => {
  "use strict";
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const body = document.body;

  // Live ------------------------------------------------------------------------------------------------------------
  const live = $("#live");
  const pauseButton = $("#pause");
  const plots = [];
  let source = null;
  let paused = false;
  let lastHeard = 0;
  let wait = 1;
  let timer = 0;
  let firstCount = null;
  let spoken = "";

  const show = (state, text) => {
    if (!live) return;
    live.className = `live ${state}`;
    // A live region speaks only when the state changes, not with every second.
    if (spoken !== state) live.setAttribute("aria-live", "polite");
    else live.setAttribute("aria-live", "off");
    spoken = state;
    live.lastElementChild.textContent = text;
  };

  const setText = (node, text) => {
    const link = node.matches("a") ? node : $("a", node);
    const target = link || node;
    if (target.textContent !== text) target.textContent = text;
    if (node.tagName === "TD") node.classList.toggle("zero", text === "0");
  };

  const apply = (message) => {
    for (const [key, text] of Object.entries(message.values))
      for (const node of $$(`[data-live="${CSS.escape(key)}"]`)) setText(node, text);
    for (const plot of plots) plot.add(message.point);
    if (firstCount === null) firstCount = message.count;
    const newer = $("#newer");
    if (newer && message.count > firstCount) {
      newer.hidden = false;
      newer.lastChild.textContent = `Show ${(message.count - firstCount).toLocaleString("en")} new`;
    }
  };

  const listen = () => {
    const path = body.dataset.stream;
    if (!path || paused || document.hidden || source) return;
    source = new EventSource(path);
    source.onopen = () => { lastHeard = Date.now(); wait = 1; };
    source.onmessage = (event) => {
      lastHeard = Date.now();
      body.classList.remove("is-stale");
      $("#stale")?.remove();
      apply(JSON.parse(event.data));
    };
    source.onerror = () => {
      close();
      clearTimeout(timer);
      timer = setTimeout(listen, wait * 1000);
      wait = Math.min(30, wait * 2);
    };
  };
  const close = () => { source?.close(); source = null; };

  const stale = (seconds) => {
    show("stale", `Stale, ${seconds} s old`);
    body.classList.add("is-stale");
    if (seconds < 10 || $("#stale")) return;
    const banner = document.createElement("div");
    banner.className = "banner warn";
    banner.id = "stale";
    banner.setAttribute("role", "status");
    banner.innerHTML = '<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><use href="#i-warn"/></svg><div><strong></strong><span></span></div><button class="btn" type="button">Try now</button>';
    $("strong", banner).textContent = `No news from ${body.dataset.manager}`;
    $("span", banner).textContent = `What you see is as of ${new Date(lastHeard).toLocaleTimeString("en-GB")}. Actions still work if the queue manager answers.`;
    $("button", banner).addEventListener("click", () => { close(); wait = 1; listen(); });
    $("main").prepend(banner);
  };

  if (live && !body.dataset.stream) { live.hidden = true; pauseButton.hidden = true; }
  setInterval(() => {
    if (!body.dataset.stream || document.hidden) return;
    if (paused) return show("paused", "Paused");
    if (!lastHeard) return;
    const seconds = Math.round((Date.now() - lastHeard) / 1000);
    if (seconds >= 5) stale(seconds);
    else show("", `Live, ${Math.max(1, seconds)} s ago`);
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else { lastHeard = Date.now(); listen(); }
  });
  const togglePause = () => {
    paused = !paused;
    pauseButton?.setAttribute("aria-pressed", String(paused));
    if (paused) { close(); show("paused", "Paused"); } else { lastHeard = Date.now(); listen(); }
  };
  pauseButton?.addEventListener("click", togglePause);

  // Plots -----------------------------------------------------------------------------------------------------------
  const colour = (name) => {
    const probe = document.createElement("i");
    probe.className = `probe ${name}`;
    body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  // 1,204, but 1.2M: a scale has room for five characters.
  const shortly = (value) => value.toLocaleString("en", value < 1e5 ? {} : { notation: "compact" });
  class Plot {
    constructor(host) {
      this.host = host;
      this.data = [[], [], [], []];
      this.span = 900;
      this.interval = 0;
      fetch(host.dataset.plot).then((answer) => answer.json()).then((found) => {
        this.span = found.span;
        // A span of hours has a point every few minutes: the newest one moves until it is as old as that.
        this.interval = found.span > 900 ? found.interval : 0;
        // Points of the stream that came before this answer belong after its points.
        const early = this.data;
        this.data = [[], [], [], []];
        this.depth = null;
        for (const point of found.points) this.push(point);
        this.fixed = this.data[0].at(-2) || 0;
        early[0].forEach((_time, index) => this.add(early.map((list) => list[index])));
        this.draw();
      }).catch(() => {});
    }
    push(point) { point.forEach((value, index) => this.data[index].push(value)); }
    add(point) {
      const times = this.data[0];
      if (times.length && times[times.length - 1] >= point[0]) return;
      if (point[0] - this.fixed < this.interval) for (const list of this.data) list.pop();
      else this.fixed = times.at(-1) || 0;
      this.push(point);
      while (times[0] < point[0] - this.span) for (const list of this.data) list.shift();
      if (this.depth) this.update(); else this.draw();
    }
    draw() {
      if (!window.uPlot || !this.data[0].length) return;
      this.host.replaceChildren();
      const width = this.host.clientWidth;
      const [a, b, grid, text] = ["a", "b", "grid", "text"].map(colour);
      const font = "11px system-ui, sans-serif";
      const axis = { stroke: text, font, grid: { stroke: grid, width: 1 }, ticks: { show: false }, border: { show: false } };
      const whole = (_plot, marks) => marks.map(shortly);
      const clock = (_plot, marks) => marks.map((mark) => new Date(mark * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: this.data[0].at(-1) - this.data[0][0] < 300 ? "2-digit" : undefined }));
      const make = (title, series, data, hasTime) => {
        const heading = document.createElement("span");
        heading.className = "hint";
        heading.textContent = title;
        this.host.append(heading);
        return new uPlot({
          width, height: hasTime ? 116 : 92, legend: { show: false }, cursor: { show: false }, padding: [6, 60, 4, 0],
          scales: { x: { time: true, range: (_plot, min, max) => [Math.min(min, max - 60), max] }, y: { range: (_plot, _min, max) => [0, Math.max(4, max * 1.15)] } },
          axes: [{ ...axis, size: 24, grid: { show: false }, show: hasTime, values: clock, space: 90 }, { ...axis, size: 44, values: whole, space: 28, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7] }],
          series: [{}, ...series],
          hooks: { draw: [(plot) => this.write(plot)] },
        }, data, this.host);
      };
      const points = { show: false };
      this.depth = make("Messages", [{ stroke: a, width: 1.75, fill: a.replace("rgb(", "rgba(").replace(")", ", 0.1)"), points }], [this.data[0], this.data[1]], false);
      this.rate = make("Messages per second", [{ stroke: a, width: 1.75, points }, { stroke: b, width: 1.75, dash: [4, 3], points }], [this.data[0], this.data[2], this.data[3]], true);
    }
    // The last value stands at the end of its line.
    write(plot) {
      const context = plot.ctx;
      const last = plot.data[0].length - 1;
      context.save();
      context.fillStyle = getComputedStyle(body).color;
      context.textAlign = "left";
      context.textBaseline = "alphabetic";
      context.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
      const names = plot.series.length > 2 ? ["in ", "out "] : [""];
      let above = -Infinity;
      const step = 12 * devicePixelRatio;
      for (let index = 1; index < plot.series.length; index += 1) {
        const value = plot.data[index][last];
        let y = plot.valToPos(value, "y", true);
        if (Math.abs(y - above) < step) y = above - step;
        above = y;
        context.fillText(names[index - 1] + shortly(value), plot.bbox.left + plot.bbox.width + 6 * devicePixelRatio, y + 4);
      }
      context.restore();
    }
    update() {
      this.depth.setData([this.data[0], this.data[1]]);
      this.rate.setData([this.data[0], this.data[2], this.data[3]]);
    }
  }
  for (const host of $$("[data-plot]")) plots.push(new Plot(host));
  const redraw = () => plots.forEach((plot) => { plot.depth = null; plot.draw(); });
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  listen();

  // Theme -----------------------------------------------------------------------------------------------------------
  const themeButton = $("#theme");
  const nameTheme = () => themeButton?.setAttribute("aria-label", `Theme: ${document.documentElement.dataset.theme || "as the system"}`);
  themeButton?.addEventListener("click", () => {
    const order = ["", "light", "dark"];
    const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % 3];
    if (next) { document.documentElement.dataset.theme = next; localStorage.setItem("theme", next); }
    else { delete document.documentElement.dataset.theme; localStorage.removeItem("theme"); }
    nameTheme();
    redraw();
  });
  nameTheme();

  // Selection -------------------------------------------------------------------------------------------------------
  const selecting = (form) => {
    const boxes = () => $$('input[type="checkbox"][name="message"]', form);
    const bar = $(".selbar", form);
    const all = $("[data-all]", form);
    const update = () => {
      const count = boxes().filter((box) => box.checked).length;
      bar.hidden = !count;
      $("strong", bar).textContent = `${count} selected`;
      if (all) { all.checked = count > 0 && count === boxes().length; all.indeterminate = count > 0 && !all.checked; }
    };
    form.addEventListener("change", (event) => {
      if (event.target === all) boxes().forEach((box) => { box.checked = all.checked; });
      update();
    });
    update();
  };
  $$("[data-selecting]").forEach(selecting);

  // The open message: the row that htmx loaded stands out, and the list gives way on a narrow screen.
  document.addEventListener("htmx:afterSwap", (event) => {
    const row = event.detail.requestConfig?.elt?.closest?.("tr");
    if (!row || !$("#pane")) return;
    $$("tr.on").forEach((one) => { one.classList.remove("on"); one.removeAttribute("aria-current"); });
    row.classList.add("on");
    row.setAttribute("aria-current", "true");
    $(".split")?.classList.add("open");
    if (innerWidth <= 1020) $("#pane").scrollIntoView();
  });

  // Typed confirmation ------------------------------------------------------------------------------------------------
  for (const input of $$("[data-typed]")) {
    const button = $('button[type="submit"]', input.form);
    const hint = $("#typed-h");
    const check = () => {
      const fits = input.value === input.dataset.typed;
      button.disabled = !fits;
      hint.textContent = fits ? "The name matches." : "Not yet the name of the queue. The server checks it again.";
    };
    input.addEventListener("input", check);
    check();
  }

  // Small things ------------------------------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-copy-from], [data-dismiss], [data-keys]");
    if (!target) return;
    if (target.matches("[data-dismiss]")) target.closest(".toast").remove();
    else if (target.matches("[data-keys]")) $("#keys").showModal();
    else {
      const from = target.dataset.copyFrom;
      const text = from ? $$(".l", $(from)).map((line) => line.textContent).join("\n") : target.dataset.copy;
      navigator.clipboard?.writeText(text);
    }
  });
  // On a narrow screen the tabs scroll sideways: the current one is in sight.
  for (const tab of $$(".tabs [aria-current]")) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 16;
  // A file is read into the field that is sent: the server takes text, and shows what it would do.
  for (const input of $$("[data-file-to]"))
    input.addEventListener("change", async () => { if (input.files[0]) $(`#${input.dataset.fileTo}`).value = await input.files[0].text(); });
  for (const toast of $$(".toast")) {
    const leave = () => {
      if (toast.matches(":hover") || toast.contains(document.activeElement)) setTimeout(leave, 1000);
      else toast.remove();
    };
    setTimeout(leave, 6000);
  }

  // Keys ----------------------------------------------------------------------------------------------------------------
  const keysOn = $("#keys-on");
  if (keysOn) {
    keysOn.checked = localStorage.getItem("keys") !== "off";
    keysOn.addEventListener("change", () => localStorage.setItem("keys", keysOn.checked ? "on" : "off"));
  }
  const pages = { o: "/", q: "/queues", d: "/deadletters", u: "/outgoing", p: "/peers" };
  let went = 0;
  let at = -1;
  const rows = () => $$("[data-rows] > tr");
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    all[at]?.classList.remove("at");
    at = Math.max(0, Math.min(all.length - 1, at + by));
    all[at].classList.add("at");
    $("th a, a, button", all[at])?.focus();
  };
  addEventListener("keydown", (event) => {
    const field = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (field) return field.blur();
      if ($("dialog[open]")) return;
      return $('[aria-keyshortcuts="Escape"]')?.click();
    }
    if (field || keysOn?.checked === false || $("dialog[open]")) return;
    if (Date.now() - went < 1500 && pages[event.key]) { location.href = pages[event.key]; return; }
    went = event.key === "g" ? Date.now() : 0;
    const actions = {
      "/": () => $(".find input")?.focus(),
      f: () => $('main [aria-keyshortcuts="f"]')?.focus(),
      j: () => step(1),
      k: () => step(-1),
      x: () => $('input[type="checkbox"]', rows()[at] || body)?.click(),
      p: togglePause,
      "?": () => $("#keys").showModal(),
    };
    const action = actions[event.key] || ("scemt".includes(event.key) && (() => $(`main [aria-keyshortcuts="${event.key}"]`)?.click()));
    if (action) { event.preventDefault(); action(); }
  });
})();
