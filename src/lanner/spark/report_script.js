// The report's filters and its list of messages. The page is complete without it: this only narrows what is shown.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const id = (name) => document.getElementById(name);
  const number = (value) => value.toLocaleString("en").replaceAll(",", "\u202f");
  const state = { queue: "", status: "", reason: "", poison: false, from: 0, to: data.times.length - 1, sort: 3, down: true, shown: 50 };
  const bar = id("filters");
  if (!bar || !data.times.length) return;
  bar.hidden = false;

  const element = (tag, text, properties = {}) => Object.assign(document.createElement(tag), { textContent: text }, properties);
  const select = (name, entries) => id(name).replaceChildren(...entries.map(([value, text]) => element("option", text, { value })));
  select("f-queue", [["", "all queues"], ...data.queues.map((queue, index) => [String(index), queue])]);
  select("f-status", [["", "any end"], ...Object.entries(data.statuses)]);
  for (const edge of ["f-from", "f-to"]) Object.assign(id(edge), { min: 0, max: data.times.length - 1 });

  // Times that are not exact have whole seconds.
  const seconds = (value, isExact) => {
    if (value === null) return "\u2013";
    const size = Math.abs(value);
    if (size < (isExact ? 0.001 : 1)) return isExact ? "< 1 ms" : "< 1 s";
    if (size < 1) return `${Math.round(value * 1000)} ms`;
    if (size < 120) return `${value.toFixed(isExact ? 1 : 0)} s`;
    return size < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
  };
  const time = (value, digits = 23) => (value === null ? "\u2013" : new Date(value).toISOString().slice(0, digits).replace("T", " "));
  const edges = () => [data.times[state.from], data.times[state.to] + data.step];
  const isAllTime = () => state.from === 0 && state.to === data.times.length - 1;
  // Messages whose time of sending is unknown (null) are in no part of the time.
  const has = (queue, when) => {
    const [first, last] = edges();
    return (state.queue === "" || queue === Number(state.queue)) && (when === null ? isAllTime() : when >= first && when < last);
  };

  // The figures at the top are those of the page, until a queue or a time is chosen.
  const tiles = [...document.querySelectorAll("[data-tile]")].map((tile) => [tile, tile.querySelector("b").textContent]);
  function drawTiles(counts, total) {
    const isNarrow = state.queue !== "" || !isAllTime();
    const of = (...names) => names.reduce((sum, name) => sum + (counts[name] || 0), 0);
    const shown = {
      total: number(total),
      received: total ? `${((100 * of("received")) / total).toFixed(1)} %` : "\u2013",
      waiting: number(of("waiting")),
      failed: number(of(...data.failed)),
    };
    for (const [tile, whole] of tiles) {
      const name = tile.dataset.tile;
      tile.hidden = isNarrow && !name;
      tile.querySelector("b").textContent = isNarrow && name ? shown[name] : whole;
    }
  }

  function drawStatus() {
    const counts = {};
    for (const [queue, when, status, count] of data.cube)
      if (has(queue, when === null ? null : data.times[when])) counts[status] = (counts[status] || 0) + count;
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    drawTiles(counts, total);
    let left = 0;
    const box = id("status-bar");
    if (!box) return;
    for (const rect of box.querySelectorAll("rect")) {
      const share = total ? (100 * (counts[rect.dataset.status] || 0)) / total : 0;
      rect.setAttribute("x", `${left}%`);
      rect.setAttribute("width", `${share}%`);
      left += share;
    }
    box.querySelector(".head span:last-child").textContent = number(total);
    for (const button of document.querySelectorAll("button[data-status]"))
      button.querySelector("b").textContent = number(counts[button.dataset.status] || 0);
  }

  // A round number as the end of an axis.
  const roundUp = (value) => {
    const base = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 4, 5, 10].find((step) => step * base >= value) * base;
  };

  function drawTraffic() {
    const svg = id("traffic");
    if (!svg || !data.traffic.times.length) return;
    const { times, rows } = data.traffic;
    const series = [0, 1, 2].map(() => times.map(() => 0));
    for (const [queue, when, ...values] of rows)
      if (state.queue === "" || queue === Number(state.queue)) values.forEach((value, place) => (series[place][when] += value));
    const top = roundUp(series.flat().reduce((most, value) => Math.max(most, value), 1));
    const [start, end] = [times[0], Math.max(times.at(-1), times[0] + 1)];
    const across = (when) => Math.min(Math.max((1000 * (when - start)) / (end - start), 0), 1000);
    const line = (values) => values.map((value, place) =>
      `${across(times[place]).toFixed(1)} ${(200 * (1 - value / top)).toFixed(1)}`).join("L");
    for (const path of svg.querySelectorAll("path[data-series]"))
      path.setAttribute("d", `${path.classList.contains("area") ? "M0 200L" : "M"}${line(series[path.dataset.series])}${path.classList.contains("area") ? "L1000 200Z" : ""}`);
    // What is outside of the chosen time is dimmed.
    const [first, last] = isAllTime() ? [0, 1000] : edges().map(across);
    const [before, after] = svg.querySelectorAll("rect.out");
    before.setAttribute("width", first);
    after.setAttribute("x", last);
    after.setAttribute("width", 1000 - last);
    id("traffic-top").textContent = number(top);
    id("traffic-half").textContent = number(top / 2);
  }

  function drawMessages() {
    const rows = data.messages.filter((row) => has(row[1], row[3])
      && (!state.status || row[2] === state.status) && (!state.reason || row[6] === state.reason) && (!state.poison || row[7] > 0));
    const key = state.sort;
    rows.sort((a, b) => ((a[key] ?? -Infinity) < (b[key] ?? -Infinity) ? 1 : -1) * (state.down ? 1 : -1));
    id("messages").replaceChildren(...rows.slice(0, state.shown).map((row) => {
      const line = document.createElement("tr");
      const cells = [row[0] || "\u2013", data.queues[row[1]] ?? "?", data.statuses[row[2]] + (row[6] ? `: ${row[6]}` : ""),
        time(row[3]), seconds(row[4], row[10]), seconds(row[5], row[11]), String(row[7] || ""), `${row[9] ?? "?"}\\${row[8].split("\\")[1] ?? ""}`];
      cells.forEach((cell, place) => line.append(element("td", cell, { className: [4, 5, 6].includes(place) ? "n" : place === 7 ? "id" : "name", title: place === 7 ? row[8] : "" })));
      return line;
    }));
    const listed = data.messages.length;
    id("messages-count").textContent = `${number(Math.min(state.shown, rows.length))} of ${number(rows.length)} messages`
      + (listed < data.total ? `, out of ${number(listed)}: those that failed and the newest. The table lifecycle has all ${number(data.total)}` : "");
    id("messages-more").hidden = rows.length <= state.shown;
  }

  function draw() {
    state.from = Math.min(state.from, state.to);
    Object.assign(id("f-queue"), { value: state.queue });
    Object.assign(id("f-status"), { value: state.status });
    Object.assign(id("f-from"), { value: state.from });
    Object.assign(id("f-to"), { value: state.to });
    const [first, last] = edges();
    id("f-span").textContent = `${time(first, 19)} to ${time(last, 19)}`;
    const undated = data.cube.filter(([queue, when]) => when === null && (state.queue === "" || queue === Number(state.queue)))
      .reduce((sum, row) => sum + row[3], 0);
    const others = [state.reason && `reason: ${state.reason}`, state.poison && "aborted receives",
      !isAllTime() && undated && `without ${number(undated)} whose time of sending is unknown`].filter(Boolean);
    id("f-other").textContent = others.join(", ");
    for (const item of document.querySelectorAll("[data-queue]"))
      if (!item.matches("button")) item.hidden = state.queue !== "" && data.names[item.dataset.queue] !== Number(state.queue);
    drawStatus();
    drawTraffic();
    drawMessages();
  }

  id("f-queue").addEventListener("change", (event) => { state.queue = event.target.value; draw(); });
  id("f-status").addEventListener("change", (event) => { state.status = event.target.value; draw(); });
  id("f-from").addEventListener("input", (event) => { state.from = Math.min(Number(event.target.value), state.to); draw(); });
  id("f-to").addEventListener("input", (event) => { state.to = Math.max(Number(event.target.value), state.from); draw(); });
  id("f-reset").addEventListener("click", () => {
    Object.assign(state, { queue: "", status: "", reason: "", poison: false, from: 0, to: data.times.length - 1, shown: 50 });
    draw();
  });
  id("messages-more").addEventListener("click", () => { state.shown += 200; draw(); });
  for (const head of document.querySelectorAll("th[data-sort]"))
    head.addEventListener("click", () => {
      const key = Number(head.dataset.sort);
      Object.assign(state, { down: state.sort === key ? !state.down : true, sort: key });
      draw();
    });
  // A number leads to its messages.
  for (const item of document.querySelectorAll("[data-drill]")) {
    const drill = () => {
      const wanted = JSON.parse(item.dataset.drill);
      Object.assign(state, { status: "", reason: "", poison: false, shown: 50 }, wanted);
      if (wanted.queue !== undefined) state.queue = String(data.names[wanted.queue] ?? "");
      draw();
      id("messages-section").scrollIntoView({ behavior: "smooth" });
    };
    item.addEventListener("click", drill);
    item.addEventListener("keydown", (event) => { if (event.key === "Enter") drill(); });
  }
  draw();
})();
