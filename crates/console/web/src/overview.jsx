// The first page answers four questions: is it healthy, is it slow, what runs out, and what has changed.
import { ask, part } from './api.js';
import { Chart } from './chart.jsx';
import { bytes, count, last, micros, moment, percent } from './format.js';
import { findings, lastMinute, missed, pastError, resources } from './health.js';
import { Outside } from './latency.jsx';
import { Badge, Loading, Meter, Page, Table, Trouble } from './parts.jsx';
import { usePoll } from './poll.js';
import { to } from './route.js';

const EVERY = 3000;
const stats = (bucket, zoom) => ask(`/pools/default/buckets/${part(bucket)}/stats?zoom=${zoom}`).then((answer) => answer.op.samples);

/** The statistics of every bucket, by name; a bucket that is not ready has none. */
async function everyBucket(buckets, zoom) {
  const told = await Promise.all(buckets.map(({ name }) => stats(name, zoom).catch(() => ({ timestamp: [] }))));
  return Object.fromEntries(buckets.map(({ name }, index) => [name, told[index]]));
}

async function look() {
  const [pool, buckets, logs, slo, alerts] = await Promise.all([
    ask('/pools/default'),
    ask('/pools/default/buckets?skipMap=true'),
    ask('/logs').catch(() => ({ list: [] })),
    ask('/settee/slo').catch(() => ({ objectives: [] })),
    ask('/settee/alerts').catch(() => undefined),
  ]);
  return { pool, buckets, logs: logs.list, objectives: slo.objectives, firing: alerts?.firing, samples: await everyBucket(buckets, 'minute') };
}

/** How long operations of each bucket took within the last minute. */
const lookAtLatency = async () => {
  const buckets = await ask('/pools/default/buckets?skipMap=true');
  const told = await Promise.all(buckets.map(({ name }) => ask(`/settee/latency/${part(name)}?zoom=minute`).catch(() => undefined)));
  return Object.fromEntries(buckets.map(({ name }, index) => [name, told[index]]));
};

/** What the figures of the last hour and of the last weeks say, which change slowly. */
const lookBack = async () => {
  const [buckets, told] = await Promise.all([
    ask('/pools/default/buckets?skipMap=true'),
    ask('/settee/forecast').catch(() => ({ forecasts: [] })),
  ]);
  return { samples: await everyBucket(buckets, 'hour'), forecasts: told.forecasts, at: Date.now() };
};

function Healthy({ found }) {
  const worst = found[0]?.level;
  const kind = worst === 'bad' ? 'bad' : worst === 'warn' ? 'warn' : 'good';
  const said = { bad: 'No. Something needs you.', warn: 'Mostly. Something wants attention.', good: 'Yes.' }[kind];
  return (
    <section class={`card verdict ${kind}`} aria-labelledby="healthy">
      <h2 id="healthy">Is it healthy?</h2>
      <p class="answer">{said}</p>
      {found.length ? (
        <ul class="findings">
          {found.map(({ level, text, advice, page, name }) => (
            <li key={text}><Badge kind={level}>{{ bad: 'Act', warn: 'Look', info: 'Note' }[level]}</Badge> <span><b>{text}</b> {advice} <a href={name ? to(page, name) : to(page)}>Go there<span class="hidden">: {text}</span></a></span></li>
          ))}
        </ul>
      ) : <p class="quiet">Every node answers, every copy is up to date, and no limit is near.</p>}
    </section>
  );
}

const rate = (samples, name) => last(samples?.[name]) ?? 0;

/** Objectives of latency, and how they are kept. */
function Objectives({ objectives }) {
  const state = { met: 'good', burning: 'warn', exhausted: 'bad' };
  const columns = [
    { title: 'Objective', value: (row) => `${row.bucket} ${row.name}`, show: (row) => <><b>{row.name}</b> of <a href={to('latency', row.bucket)}>{row.bucket}</a></> },
    { title: 'Promise', value: (row) => row.latencyUs, show: (row) => <span class="even">{row.targetPercent} % of {row.operation} within {micros(row.latencyUs)}</span> },
    { title: 'Kept', value: (row) => row.attainedPercent ?? -1, show: (row) => (Number.isFinite(row.attainedPercent) ? `${row.attainedPercent.toFixed(3)} %` : '–'), isNumber: true },
    { title: 'Budget left', value: (row) => row.budgetLeftPercent ?? 100, show: (row) => percent(row.budgetLeftPercent), isNumber: true },
    { title: 'Clients see', value: (row) => row.seenFromOutside.sdk?.attainedPercent ?? -1, show: (row) => <Outside seen={row.seenFromOutside.sdk} />, isNumber: true },
    { title: 'State', value: (row) => row.state, show: (row) => <Badge kind={state[row.state]}>{row.state}</Badge> },
  ];
  const keyOf = (row) => `${row.bucket} ${row.name}`;
  return objectives.length ? <Table caption="Objectives of latency" columns={columns} rows={objectives} keyOf={keyOf} /> : <p class="help">No objective of latency is set. The page <a href={to('latency')}>Latency</a> sets one, and this page says whether it is kept.</p>;
}

/** Percentiles of an operation within the last minute: half of all requests, and all but one of a hundred. */
const took = (latency, operation, title) => {
  const of = (row) => lastMinute(latency?.[row.name], operation);
  return {
    title, value: (row) => of(row)?.p99 ?? -1, isNumber: true,
    show: (row) => (of(row) ? <span class="even"><a href={to('latency', row.name, operation)}>{micros(of(row).p50)}, {micros(of(row).p99)}</a></span> : '–'),
  };
};

function Slow({ buckets, samples, objectives, latency }) {
  const columns = [
    { title: 'Bucket', value: (row) => row.name, show: (row) => <a href={to('buckets', row.name)}>{row.name}</a> },
    { title: 'Operations/s', value: (row) => rate(samples[row.name], 'ops'), show: (row) => count(rate(samples[row.name], 'ops')), isNumber: true },
    took(latency, 'get', 'Reads p50, p99'),
    took(latency, 'set', 'Writes p50, p99'),
    { title: 'Reads from disk/s', value: (row) => rate(samples[row.name], 'ep_bg_fetched'), show: (row) => count(rate(samples[row.name], 'ep_bg_fetched')), isNumber: true },
    { title: 'Mean disk read', value: (row) => rate(samples[row.name], 'avg_bg_wait_time'), show: (row) => micros(rate(samples[row.name], 'avg_bg_wait_time')), isNumber: true },
    { title: 'Writes that wait', value: (row) => rate(samples[row.name], 'settee_paced_waiting'), show: (row) => count(rate(samples[row.name], 'settee_paced_waiting')), isNumber: true },
    { title: 'Disk queue', value: (row) => rate(samples[row.name], 'disk_write_queue'), show: (row) => count(rate(samples[row.name], 'disk_write_queue')), isNumber: true },
  ];
  const slower = missed(objectives);
  const waiting = buckets.filter(({ name }) => rate(samples[name], 'settee_paced_waiting') > 0 || rate(samples[name], 'ep_cache_miss_rate') > 10);
  const busiest = [...buckets].sort((a, b) => rate(samples[b.name], 'ops') - rate(samples[a.name], 'ops')).slice(0, 4);
  const times = busiest.length ? samples[busiest[0].name].timestamp : [];
  return (
    <section class="card" aria-labelledby="slow">
      <h2 id="slow">Is it slow?</h2>
      <p class="answer">{slower ? `Slower than promised: ${slower}.` : waiting.length ? `Requests wait in ${waiting.map((one) => one.name).join(', ')}.` : 'No request waits for memory, and few wait for the disk.'}</p>
      {times.length ? <Chart title="Operations per second" times={times} series={busiest.map(({ name }) => ({ name, values: align(times, samples[name], 'ops') }))} /> : null}
      <Objectives objectives={objectives} />
      <Table caption="Speed of buckets" columns={columns} rows={buckets} keyOf={(row) => row.name} empty="There is no bucket yet." />
      <p class="help">Of the last minute’s reads and writes of documents, as the nodes measure them, half were faster than p50, and one of a hundred was slower than p99.</p>
    </section>
  );
}

/** A bucket's figures at other moments: those of buckets are a second apart at most. */
function align(times, samples, name) {
  const values = samples?.[name] ?? [];
  return times.map((_, index) => values[values.length - times.length + index] ?? null);
}

const amount = (row, value) => (row.one?.what === 'objective' ? percent(value) : bytes(value));

function RunsOut({ pool, samples, past }) {
  const rows = resources(pool, samples, past);
  const near = rows.filter((row) => row.when.isNear);
  const columns = [
    { title: 'What', value: (row) => row.name },
    { title: 'Used', value: (row) => row.used / row.limit, show: (row) => (Number.isFinite(row.used) ? <span class="even"><Meter value={row.used} of={row.limit} label={row.name} /> {percent((row.used / row.limit) * 100)}</span> : '–') },
    { title: 'Of', value: (row) => row.limit, show: (row) => <span class="even">{amount(row, row.used)} of {amount(row, row.limit)}</span> },
    { title: 'A day', value: (row) => row.one?.perDay ?? 0, show: (row) => (Number.isFinite(row.one?.perDay) ? amount(row, row.one.perDay) : '–'), isNumber: true },
    { title: 'Reaches its limit', value: (row) => (row.when.isNear ? 0 : 1), show: (row) => (row.when.isNear ? <Badge kind="warn">{row.when.text}</Badge> : row.when.text) },
    { title: 'Past error', value: (row) => row.one?.pastForecasts?.[0]?.percent ?? -1, show: (row) => pastError(row.one) },
  ];
  return (
    <section class="card" aria-labelledby="out">
      <h2 id="out">What runs out, and when?</h2>
      <p class="answer">{near.length ? `${near.map((row) => row.name).join(', ')}.` : 'Nothing within two weeks, as far as can be seen.'}</p>
      <Table caption="What is used" columns={columns} rows={rows} keyOf={(row) => row.name} sort={4} />
      <p class="help">Of each limit, the node is shown that reaches it first. Memory’s limit is the high watermark, where values begin to leave it. Times come from up to two weeks; of the first day, from the last hour. Past error: how far forecasts were off that were made a day, and a week, before.</p>
    </section>
  );
}

const Changed = ({ logs }) => (
  <section class="card" aria-labelledby="changed">
    <h2 id="changed">What has changed?</h2>
    {logs.length ? (
      <ol class="events">
        {[...logs].sort((a, b) => b.tstamp - a.tstamp).slice(0, 8).map((event) => (
          <li key={`${event.tstamp} ${event.text}`}><time dateTime={event.serverTime}>{moment(event.tstamp)}</time> {event.type === 'info' ? null : <Badge kind="warn">{event.type}</Badge>} {event.text}</li>
        ))}
      </ol>
    ) : <p class="quiet">Nothing since this node was started.</p>}
  </section>
);

export function Overview() {
  const seen = usePoll(look, EVERY);
  const past = usePoll(lookBack, 60_000);
  const latency = usePoll(lookAtLatency, 5000);
  if (!seen.data) return <Page title="Overview"><Loading of={seen} /></Page>;
  const { pool, buckets, logs, objectives, firing, samples } = seen.data;
  return (
    <Page title={pool.clusterName || 'Overview'}>
      <Trouble error={seen.error} />
      <div class="cards">
        <Healthy found={findings(pool, buckets, samples, firing)} />
        <Slow buckets={buckets} samples={samples} objectives={objectives} latency={latency.data} />
        <RunsOut pool={pool} samples={samples} past={past.data} />
        <Changed logs={logs} />
      </div>
    </Page>
  );
}
