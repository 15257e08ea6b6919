// A heat map: how many requests took how long, over time. The same is in a table, since a canvas says nothing to a screen reader.
import { useEffect, useRef, useState } from 'preact/hooks';
import { colour, label } from './chart.jsx';
import { count, micros } from './format.js';
import { theme } from './theme.js';

const HEIGHT = 170;
const LEFT = 66;
const BOTTOM = 18;

/** Rows of the map: each is half of a power of two of microseconds, which the eye tells apart. */
const rowOf = (from) => (from < 1 ? 0 : Math.floor(Math.log2(from) * 2) + 1);
const floorOf = (row) => (row < 1 ? 0 : 2 ** ((row - 1) / 2));

/** The counts by row for each moment, and which rows have any. */
function grid(histograms) {
  let [low, high, most] = [Infinity, -Infinity, 0];
  const columns = histograms.map((steps) => {
    const cells = new Map();
    for (const [from, , number] of steps) {
      const row = rowOf(from);
      cells.set(row, (cells.get(row) ?? 0) + number);
      low = Math.min(low, row);
      high = Math.max(high, row);
      most = Math.max(most, cells.get(row));
    }
    return cells;
  });
  return { columns, low, high, most };
}

function draw(canvas, { columns, low, high, most }, times) {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = width * scale;
  canvas.height = HEIGHT * scale;
  const paint = canvas.getContext('2d');
  paint.scale(scale, scale);
  paint.clearRect(0, 0, width, HEIGHT);
  if (!(most > 0)) return;
  const [hot, ink] = [colour('series-0'), colour('quiet')];
  const rows = high - low + 1;
  const [wide, tall] = [(width - LEFT) / columns.length, (HEIGHT - BOTTOM) / rows];
  paint.fillStyle = hot;
  columns.forEach((cells, at) => {
    for (const [row, number] of cells) {
      // Few requests are what somebody looks for here, so they are seen as well.
      paint.globalAlpha = 0.15 + 0.85 * (Math.log1p(number) / Math.log1p(most));
      paint.fillRect(LEFT + at * wide, HEIGHT - BOTTOM - (row - low + 1) * tall, Math.max(wide - 0.5, 1), Math.max(tall - 0.5, 1));
    }
  });
  paint.globalAlpha = 1;
  paint.fillStyle = ink;
  paint.font = '11px system-ui';
  paint.textAlign = 'right';
  paint.textBaseline = 'middle';
  const every = Math.ceil(rows / 7);
  for (let row = low; row <= high; row += every) paint.fillText(micros(floorOf(row)), LEFT - 6, HEIGHT - BOTTOM - (row - low + 0.5) * tall);
  paint.textBaseline = 'alphabetic';
  const step = (times[1] - times[0]) / 1000;
  const apart = Math.max(1, Math.ceil(times.length / Math.max(1, Math.floor((width - LEFT) / 80))));
  paint.textAlign = 'center';
  for (let at = 0; at < times.length; at += apart) {
    const place = LEFT + (at + 0.5) * wide;
    if (place < width - 26) paint.fillText(label(times[at] / 1000, step), Math.max(place, 26), HEIGHT - 3);
  }
}

/** The figures of all moments together, by row. */
function Rows({ title, map }) {
  const sums = new Map();
  for (const cells of map.columns) {
    for (const [row, number] of cells) sums.set(row, (sums.get(row) ?? 0) + number);
  }
  const all = [...sums.values()].reduce((sum, one) => sum + one, 0);
  return (
    <div class="scroll short" tabIndex={0} role="region" aria-label={`${title}, figures`}>
      <table>
        <caption class="hidden">{title}</caption>
        <thead><tr><th scope="col" class="number">From</th><th scope="col" class="number">Below</th><th scope="col" class="number">Requests</th><th scope="col" class="number">Share</th></tr></thead>
        <tbody>
          {[...sums].sort(([a], [b]) => a - b).map(([row, number]) => (
            <tr key={row}>
              <td class="number">{micros(floorOf(row))}</td>
              <td class="number">{micros(floorOf(row + 1))}</td>
              <td class="number">{count(number)}</td>
              <td class="number">{((number / all) * 100).toFixed(2)} %</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** `histograms`: for each moment a list of `[from, to, count]`, in microseconds. */
export function HeatMap({ title, times, histograms }) {
  const canvas = useRef();
  const [isTable, setTable] = useState(false);
  const map = grid(histograms);
  useEffect(() => {
    if (isTable) return undefined;
    const ground = canvas.current;
    draw(ground, map, times);
    const watch = new ResizeObserver(() => draw(ground, map, times));
    watch.observe(ground);
    return () => watch.disconnect();
  }, [histograms, isTable, theme.value]);
  const said = map.most > 0 ? `between ${micros(floorOf(map.low))} and ${micros(floorOf(map.high + 1))}` : 'none';
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        <button type="button" class="plain" aria-pressed={isTable} onClick={() => setTable(!isTable)}>{isTable ? 'Map' : 'Table'}<span class="hidden"> of {title}</span></button>
      </figcaption>
      {isTable ? <Rows title={title} map={map} /> : <canvas ref={canvas} class="heat" role="img" aria-label={`${title}: ${said}`} />}
      <p class="help">The darker a field, the more requests took so long at that moment. A stripe far above the others is a stall that percentiles may hide.</p>
    </figure>
  );
}
