// A chart over time, with the same figures in words and in a table, since a canvas says nothing to a screen reader.
import uPlot from 'uplot';
import { useEffect, useRef, useState } from 'preact/hooks';
import { theme } from './theme.js';
import { clock, count, last, moment } from './format.js';

const HEIGHT = 150;

/** A colour of the style sheet as a canvas understands it. */
export function colour(name) {
  const probe = document.createElement('i');
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** A moment on the axis: the day where the steps are long. */
export function label(seconds, step) {
  const at = new Date(seconds * 1000);
  if (step >= 86400) return at.toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
  return at.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: step < 60 ? '2-digit' : undefined, hourCycle: 'h23' });
}

function options(series, show, width) {
  const [ink, line] = [colour('quiet'), colour('line')];
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: '11px system-ui' };
  return {
    width,
    height: HEIGHT,
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    legend: { show: false },
    scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
    axes: [
      { ...axis, space: 80, values: (_, ticks, __, ___, step) => ticks.map((tick) => label(tick, step)) },
      { ...axis, size: 66, space: 28, values: (_, ticks) => ticks.map((tick) => show(tick)) },
    ],
    series: [
      {},
      ...series.map((one, index) => ({
        label: one.name,
        stroke: colour(one.isLimit ? 'limit' : `series-${(one.colour ?? index) % 4}`),
        width: one.isLimit ? 1 : 1.75,
        dash: one.isLimit ? [4, 4] : undefined,
        points: { show: false },
        spanGaps: true,
      })),
    ],
  };
}

function Rows({ title, times, series, show }) {
  const isLong = times.length > 1 && last(times) - times[0] > 20 * 3600 * 1000;
  const rows = times.map((time, index) => ({ time, values: series.map((one) => one.values[index]) })).reverse();
  return (
    <div class="scroll short" tabIndex={0} role="region" aria-label={`${title}, figures`}>
      <table>
        <caption class="hidden">{title}</caption>
        <thead><tr><th scope="col">Time</th>{series.map((one) => <th key={one.name} scope="col" class="number">{one.name}</th>)}</tr></thead>
        <tbody>
          {rows.map(({ time, values }) => (
            <tr key={time}><td>{isLong ? moment(time) : clock(time)}</td>{values.map((value, index) => <td key={index} class="number">{show(value)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** `times` in milliseconds; a series is `{ name, values, isLimit }`. `show` makes text of a figure. */
export function Chart({ title, times, series, show = count, help }) {
  const place = useRef();
  const plot = useRef();
  const [isTable, setTable] = useState(false);
  const shape = `${series.map((one) => one.name).join()} ${theme.value}`;
  useEffect(() => {
    if (isTable || !times.length) return undefined;
    const data = [times.map((time) => time / 1000), ...series.map((one) => one.values)];
    const ground = place.current;
    plot.current = new uPlot(options(series, show, ground.clientWidth), data, ground);
    // It is told once more when the ground has gone, before this effect ends.
    const watch = new ResizeObserver(() => ground.isConnected && plot.current?.setSize({ width: ground.clientWidth, height: HEIGHT }));
    watch.observe(ground);
    return () => {
      watch.disconnect();
      plot.current.destroy();
      plot.current = undefined;
    };
  }, [shape, isTable, times.length > 0]);
  useEffect(() => {
    plot.current?.setData([times.map((time) => time / 1000), ...series.map((one) => one.values)]);
  }, [times, series]);
  const said = series.map((one) => `${one.name} ${show(last(one.values))}`).join(', ');
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        <button type="button" class="plain" aria-pressed={isTable} onClick={() => setTable(!isTable)}>{isTable ? 'Chart' : 'Table'}<span class="hidden"> of {title}</span></button>
      </figcaption>
      <p class="legend">
        {series.map((one, index) => (
          <span key={one.name}><i class={one.isLimit ? 'swatch limit' : `swatch s${(one.colour ?? index) % 4}`} aria-hidden="true" />{one.name} <b>{show(last(one.values))}</b></span>
        ))}
      </p>
      {isTable ? <Rows title={title} times={times} series={series} show={show} /> : <div ref={place} class="plot" role="img" aria-label={`${title}: now ${said}`} />}
      {help ? <p class="help">{help}</p> : null}
    </figure>
  );
}
