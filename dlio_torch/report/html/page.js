"use strict";
// Reads the moment under the pointer in every figure with a time axis, and zooms all these figures together.
// The page shows the same figures without this script. Each <svg data-plots> lists its plots: the box in its own
// coordinates, positions on the horizontal axis ("at"), and the time in seconds of each ("seconds").
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const DRAG = 5; // pixels from which a drag is no click
  const plots = [...document.querySelectorAll("svg[data-plots]")].flatMap(svg =>
    JSON.parse(svg.dataset.plots).map(plot => ({ ...plot, svg, group: document.getElementById(plot.id) })));
  if (!plots.length) return;

  const add = (parent, tag, attributes, before = null) => {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return parent.insertBefore(element, before);
  };

  // Index of the last entry of a sorted list that is at most value, and never the very last one.
  const indexOf = (list, value) => {
    let low = 0, high = list.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle] <= value) low = middle; else high = middle;
    }
    return low;
  };

  const interpolate = (from, to, value) => {
    const k = indexOf(from, value), length = from[k + 1] - from[k];
    const share = length > 0 ? Math.min(1, Math.max(0, (value - from[k]) / length)) : 0;
    return to[k] + share * (to[k + 1] - to[k]);
  };
  const secondsAt = (plot, position) => interpolate(plot.at, plot.seconds, position);
  const positionAt = (plot, seconds) => interpolate(plot.seconds, plot.at, seconds);

  let zoomed = null; // begin and end in seconds; null: everything is shown
  const shownRange = plot => plot.shown ?? plot.range;
  const xOf = (plot, position) => {
    const [low, high] = shownRange(plot), [x, , width] = plot.box;
    return x + width * (position - low) / (high - low);
  };
  const positionOf = (plot, x) => {
    const [low, high] = shownRange(plot), [left, , width] = plot.box;
    return low + (high - low) * Math.min(1, Math.max(0, (x - left) / width));
  };

  const digits = (value, length) => value.toFixed(Math.max(0, Math.min(9, 2 - Math.floor(Math.log10(length || 1)))));
  const timeText = seconds => {
    const span = zoomed ? zoomed[1] - zoomed[0] : seconds || 1;
    return span < 1 ? `${digits(seconds * 1e3, span * 1e3)} ms` : `${digits(seconds, span)} s`;
  };

  // The drawn content of a plot, without frame, axes and labels, in an element that clips and stretches it.
  const contentOf = plot => {
    if (!plot.content) {
      const drawn = [...plot.group.children].filter(child => !/-(frame-|inside-|matplotlib\.axis_|text_|legend)/.test(child.id));
      const [x, y, width, height] = plot.box;
      plot.content = add(plot.group, "svg", { x, y, width, height, preserveAspectRatio: "none" },
        drawn.at(-1)?.nextSibling ?? null); // above the grid
      plot.content.append(...drawn);
      plot.ticks = add(plot.group, "g", { class: "ticks" });
    }
    return plot.content;
  };

  const drawTicks = plot => {
    plot.ticks.replaceChildren();
    if (!zoomed) return;
    const [low, high] = plot.shown, [, y, , height] = plot.box;
    const raw = (high - low) / 6, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find(factor => factor * power >= raw) * power;
    const last = plots.filter(other => other.svg === plot.svg).at(-1) === plot;
    for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) {
      const x = xOf(plot, tick);
      add(plot.ticks, "line", { x1: x, x2: x, y1: y + height, y2: y + height + 3.5, stroke: "#8a8a8a" });
      if (last) add(plot.ticks, "text", { x, y: y + height + 14.2, "text-anchor": "middle" })
        .textContent = tick.toFixed(Math.max(0, -Math.floor(Math.log10(step))));
    }
  };

  const button = document.createElement("button");
  button.type = "button";
  button.id = "reset";
  button.hidden = true;
  button.textContent = "Show the whole time (Esc)";
  const label = document.createElement("div");
  label.id = "moment";
  label.hidden = true;
  label.setAttribute("aria-hidden", "true");
  document.body.append(label, button);

  const zoom = range => {
    zoomed = range;
    for (const plot of plots) {
      const content = contentOf(plot), [x, y, width, height] = plot.box, [low, high] = plot.range;
      plot.shown = null;
      if (range) {
        const [from, to] = range.map(seconds => positionAt(plot, seconds));
        const least = (high - low) * 1e-6;
        plot.shown = to - from > least ? [from, to] : [from - least, from + least];
      }
      const [from, to] = shownRange(plot), scale = width / (high - low);
      content.setAttribute("viewBox", `${x + (from - low) * scale} ${y} ${(to - from) * scale} ${height}`);
      plot.group.classList.toggle("zoomed", Boolean(range));
      drawTicks(plot);
    }
    button.hidden = !range;
    hideMoment();
  };

  const pointOf = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const plotAt = (svg, point) => plots.find(({ svg: own, box: [x, y, width, height] }) => own === svg &&
    point.x >= x && point.x <= x + width && point.y >= y && point.y <= y + height);

  const hideMoment = () => {
    label.hidden = true;
    for (const plot of plots) plot.line?.setAttribute("visibility", "hidden");
  };

  const showMoment = (plot, point, event) => {
    const position = positionOf(plot, point.x), seconds = secondsAt(plot, position);
    for (const other of plots) {
      const x = xOf(other, positionAt(other, seconds)), [left, y, width, height] = other.box;
      other.line ??= add(other.svg, "line", { class: "moment" });
      const inside = x >= left - 0.01 && x <= left + width + 0.01;
      for (const [name, value] of Object.entries({ x1: x, x2: x, y1: y, y2: y + height })) other.line.setAttribute(name, value);
      other.line.setAttribute("visibility", inside ? "visible" : "hidden");
    }
    const k = indexOf(plot.at, position);
    const lines = Object.entries(plot.values).filter(([, list]) => list[k])
      .map(([name, list]) => `${name} ${Number(list[k].toPrecision(3))} ${plot.unit}`);
    if (plot.upright) {
      const [name, unit, low, high] = plot.upright, [, y, , height] = plot.box;
      lines.push(`${name} ${Number((low + (high - low) * (1 - (point.y - y) / height)).toPrecision(4))} ${unit}`);
    }
    label.replaceChildren(...[timeText(seconds), ...lines].map(text => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    }));
    label.hidden = false;
    const right = event.clientX > window.innerWidth - 220;
    label.style.left = `${event.clientX + (right ? -label.offsetWidth - 14 : 14)}px`;
    label.style.top = `${Math.min(event.clientY + 12, window.innerHeight - label.offsetHeight - 4)}px`;
  };

  let drag = null; // of the pointer: its plot, its begin, and the rectangle that shows the range
  const endDrag = () => {
    drag?.shade.remove();
    drag = null;
  };

  for (const svg of new Set(plots.map(plot => plot.svg))) {
    svg.classList.add("timed");
    svg.addEventListener("pointermove", event => {
      const point = pointOf(svg, event), plot = drag?.plot ?? plotAt(svg, point);
      if (!plot || plot.svg !== svg) return hideMoment();
      showMoment(plot, point, event);
      if (!drag) return;
      const [left, , width] = plot.box, x = Math.min(left + width, Math.max(left, point.x));
      drag.shade.setAttribute("x", Math.min(x, drag.x));
      drag.shade.setAttribute("width", Math.abs(x - drag.x));
    });
    svg.addEventListener("pointerleave", hideMoment);
    svg.addEventListener("pointerdown", event => {
      const point = pointOf(svg, event), plot = plotAt(svg, point);
      if (!plot || event.button || event.pointerType === "touch") return; // a finger scrolls
      event.preventDefault();
      if (event.isTrusted) svg.setPointerCapture(event.pointerId);
      const [, y, , height] = plot.box;
      drag = { plot, x: point.x, client: event.clientX, shade: add(svg, "rect", { class: "shade", x: point.x, y, width: 0, height }) };
    });
    svg.addEventListener("pointerup", event => {
      if (drag && Math.abs(event.clientX - drag.client) >= DRAG) {
        const ends = [drag.x, pointOf(svg, event).x].sort((a, b) => a - b);
        zoom(ends.map(x => secondsAt(drag.plot, positionOf(drag.plot, x))));
      }
      endDrag();
    });
    svg.addEventListener("pointercancel", endDrag);
    svg.addEventListener("dblclick", () => zoom(null));
  }
  button.addEventListener("click", () => zoom(null));
  document.addEventListener("keydown", event => {
    if (event.key !== "Escape" || !(zoomed || drag)) return;
    endDrag();
    zoom(null);
  });
})();
