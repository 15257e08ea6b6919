// Latency: percentiles of each operation of a bucket over time, a heat map, what requests wait for, and the objectives.
import { useState } from 'preact/hooks';
import { ask, drop, part, put } from './api.js';
import { Chart } from './chart.jsx';
import { clock, count, micros, moment, percent } from './format.js';
import { HeatMap } from './heat.jsx';
import { Badge, Confirm, Dialog, Field, Form, Loading, Page, Table, Trouble, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { go, to } from './route.js';

const ZOOMS = { minutes: ['Ten minutes', 5000], hour: ['Hour', 30_000], day: ['Day', 60_000] };
const STATES = { met: ['good', 'kept'], burning: ['warn', 'budget burns'], exhausted: ['bad', 'budget is used up'] };
/** What a request may wait for, in words. */
const PHASES = {
  queue: 'for its turn on the node',
  execute: 'its work itself',
  pacing: 'for the disk to catch up with writes',
  fetch: 'for a value from disk',
  durability: 'for its durability level',
  persistence: 'for the disk, as the client asked',
  other_wait: 'for slow work elsewhere',
  reply: 'for the client to take the answer',
};
const OPERATIONS = { get: 'Reads', set: 'Writes', durable: 'Durable writes' };

export const stateOf = (objective) => {
  const [kind, text] = STATES[objective.state] ?? ['', objective.state];
  return <Badge kind={kind}>{text}</Badge>;
};

function Percentiles({ told, operation }) {
  const figures = told.operations[operation];
  const series = [['p50', figures.p50Us], ['p99', figures.p99Us], ['p99.9', figures.p999Us]].map(([name, values]) => ({ name, values }));
  return (
    <>
      <Chart title={`Latency of ${operation}`} show={micros} times={told.timestamps} series={series} help="Measured on the node, from the reading of a request until its answer is written. Half of all requests were faster than p50, and one of a thousand was slower than p99.9." />
      <HeatMap title={`Requests of ${operation} by latency`} times={told.timestamps} histograms={figures.histograms} />
    </>
  );
}

/** Percentiles and the heat map of a bucket beside its other charts: reads, or writes. */
export function OfBucket({ bucket, zoom }) {
  const [operation, setOperation] = useState('get');
  const seen = usePoll(() => ask(`/settee/latency/${part(bucket)}?zoom=${zoom}&operation=${operation}`), ZOOMS[zoom][1], [bucket, zoom, operation]);
  const figures = seen.data?.operations[operation];
  return (
    <section class="card after" aria-label="Latency on all nodes">
      <h2>Latency on all nodes</h2>
      <div class="buttons" role="group" aria-label="Operation shown">
        {[['get', 'Reads'], ['set', 'Writes']].map(([one, title]) => <button key={one} type="button" class="small" aria-pressed={operation === one} onClick={() => setOperation(one)}>{title}</button>)}
        <a href={to('latency', bucket, operation)}>All operations, objectives, and what requests wait for</a>
      </div>
      <Trouble error={seen.data && seen.error} />
      {seen.data?.missingNodes.length ? <p class="trouble">Without what these nodes have counted: {seen.data.missingNodes.join(', ')}.</p> : null}
      {seen.data ? figures?.histograms ? <Percentiles told={seen.data} operation={operation} /> : <p class="quiet">No request of this kind has come in this time.</p> : <Loading of={seen} />}
    </section>
  );
}

function Operations({ told, bucket }) {
  const columns = [
    { title: 'Operation', value: (row) => row.name, show: (row) => <a href={to('latency', bucket, row.name)}>{row.name}</a> },
    { title: 'Requests', value: (row) => row.all.count, show: (row) => count(row.all.count), isNumber: true },
    ...[['p50', 'p50Us'], ['p99', 'p99Us'], ['p99.9', 'p999Us']].map(([title, name]) => ({ title, value: (row) => row.all[name] ?? -1, show: (row) => micros(row.all[name] ?? NaN), isNumber: true })),
  ];
  const rows = Object.entries(told.operations).map(([name, figures]) => ({ name, all: figures.all }));
  return <Table caption="Latency by operation" columns={columns} rows={rows} keyOf={(row) => row.name} empty="No request has come in this time." />;
}

function Phases({ told }) {
  const columns = [
    { title: 'Time goes', value: (row) => row.name, show: (row) => <>{PHASES[row.name] ?? row.name}</> },
    { title: 'Requests', value: (row) => row.all.count, show: (row) => count(row.all.count), isNumber: true },
    ...[['p50', 'p50Us'], ['p99', 'p99Us'], ['p99.9', 'p999Us']].map(([title, name]) => ({ title, value: (row) => row.all[name] ?? -1, show: (row) => micros(row.all[name] ?? NaN), isNumber: true })),
  ];
  const rows = Object.entries(told.phases).filter(([, figures]) => figures.all.count > 0).map(([name, figures]) => ({ name, all: figures.all }));
  return (
    <section class="card" aria-labelledby="phases">
      <h2 id="phases">What do requests wait for?</h2>
      <Table caption="What requests wait for" columns={columns} rows={rows} keyOf={(row) => row.name} empty="No request has come in this time." />
      <p class="help">Of all operations of the bucket in the time shown. A request has a line only where it waited.</p>
    </section>
  );
}

/** Where an objective is judged from outside of the server, too. */
const OUTSIDE = { probe: 'Probes see', sdk: 'Clients see' };

/** An objective as it is seen from outside: what was kept, of how many operations. */
export function Outside({ seen }) {
  if (!(seen?.events.total > 0)) return '–';
  return (
    <>
      {seen.attainedPercent.toFixed(3)} %<br />
      <span class="quiet even">of {count(seen.events.total)}{seen.goodWithinUs ? ` within ${micros(seen.goodWithinUs)}` : ''}</span>
      {seen.state === 'met' ? null : <><br />{stateOf(seen)}</>}
    </>
  );
}

/** The long windows of the alerts; a burn counts where a shorter window agrees. */
const SPANS = ['1h', '6h', '1d', '3d'];

function SetObjective({ bucket, known, close }) {
  const send = async ({ name, operation, latency, target, days }) => {
    const fields = { operation, latencyUs: Math.round(Number(latency) * 1000), targetPercent: target, periodDays: days };
    await put(`/settee/slo/${part(bucket)}/${part(known?.name ?? name)}`, fields);
    note('The objective is set.');
    close();
  };
  return (
    <Dialog title={known ? `Objective ${known.name}` : 'New objective'} close={close}>
      <Form action="Set it" cancel={close} send={send}>
        {(errors) => (
          <>
            {known ? null : <Field label="Name" name="name" required maxLength={64} pattern="[A-Za-z0-9_.\-]+" autofocus spellcheck={false} autocomplete="off" help="Letters, digits, dots, dashes and underscores." error={errors.name} />}
            <Field label="Operations" name="operation" error={errors.operation}>
              {Object.entries(OPERATIONS).map(([value, title]) => <option key={value} value={value} selected={value === (known?.operation ?? 'get')}>{title}</option>)}
            </Field>
            <Field label="Answered within, in milliseconds" name="latency" type="number" min="0.008" step="any" required defaultValue={known ? known.latencyUs / 1000 : 5} error={errors.latencyUs} />
            <Field label="Share of them, in percent" name="target" type="number" min="50" max="99.9999" step="any" required defaultValue={known?.targetPercent ?? 99.9} error={errors.targetPercent} />
            <Field label="Over so many days" name="days" type="number" min="1" max="90" required defaultValue={known?.periodDays ?? 28} error={errors.periodDays} />
          </>
        )}
      </Form>
    </Dialog>
  );
}

/** Objectives of a bucket: how they are kept, and how fast their budgets burn. */
function Objectives({ bucket }) {
  const seen = useAsk(`/settee/slo/${part(bucket)}`, 5000);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  const rows = seen.data?.objectives ?? [];
  const isSeenBy = (who) => rows.some((row) => row.seenFromOutside[who]?.events.total > 0);
  const isFast = (row, span) => row.rules.some((rule) => (rule.long === span || rule.short === span) && row.burn[span] > rule.burn);
  const burns = (row) => SPANS.filter((span) => Number.isFinite(row.burn[span]));
  const burn = {
    title: 'Burn',
    value: (row) => row.burn[SPANS[0]] ?? -1,
    show: (row) => (burns(row).length ? burns(row).map((span) => <div key={span} class={isFast(row, span) ? 'trouble even' : 'even'}>{row.burn[span].toFixed(1)} over {span}</div>) : '–'),
    isNumber: true,
  };
  const columns = [
    { title: 'Objective', value: (row) => row.name, show: (row) => <b>{row.name}</b> },
    { title: 'Promise', value: (row) => row.latencyUs, show: (row) => <><span class="even">{row.targetPercent} % of {(OPERATIONS[row.operation] ?? row.operation).toLowerCase()}</span><br /><span class="even">within {micros(row.latencyUs)},</span> <span class="even">over {row.periodDays} days</span></> },
    { title: 'State', value: (row) => row.state, show: stateOf },
    { title: 'Kept', value: (row) => row.attainedPercent ?? -1, show: (row) => (Number.isFinite(row.attainedPercent) ? `${row.attainedPercent.toFixed(3)} %` : '–'), isNumber: true },
    { title: 'Budget left', value: (row) => row.budgetLeftPercent ?? 100, show: (row) => (row.budgetLeftPercent < 0 ? `used ${(1 - row.budgetLeftPercent / 100).toFixed(1)}×` : percent(row.budgetLeftPercent)), isNumber: true },
    ...Object.entries(OUTSIDE).filter(([who]) => isSeenBy(who)).map(([who, title]) => ({
      title,
      value: (row) => row.seenFromOutside[who]?.attainedPercent ?? -1,
      show: (row) => <Outside seen={row.seenFromOutside[who]} />,
      isNumber: true,
    })),
    burn,
    { title: 'What can be done', show: (row) => <><button type="button" class="small" onClick={() => setDialog({ known: row })}>Change<span class="hidden"> {row.name}</span></button> <button type="button" class="small" onClick={() => setDialog({ gone: row.name })}>Remove<span class="hidden"> {row.name}</span></button></> },
  ];
  return (
    <section class="card" aria-labelledby="objectives">
      <div class="head">
        <h2 id="objectives">Objectives</h2>
        <button type="button" onClick={() => setDialog('new')}>New objective</button>
      </div>
      <Trouble error={seen.error} />
      {seen.data?.missingNodes?.length ? <p class="trouble">Without what these nodes have counted: {seen.data.missingNodes.join(', ')}.</p> : null}
      {seen.data ? <Table caption="Objectives" columns={columns} rows={rows} keyOf={(row) => row.name} empty="No objective is set. One says which share of requests is to be answered how fast, and an alert fires before the promise is broken." /> : seen.error ? null : <Loading of={seen} />}
      {isSeenBy('sdk') ? <p class="help">Clients count in steps: an operation is good for them where the whole of its step is.</p> : null}
      {rows.length ? <p class="help">A burn of 1 uses up the whole budget of slow requests just at the end of the period; 14.4 does so in two days of 28. Red: faster than an alert allows.</p> : null}
      {dialog === 'new' || dialog?.known ? <SetObjective bucket={bucket} known={dialog.known} close={close} /> : null}
      {dialog?.gone ? (
        <Confirm title={`Remove ${dialog.gone}`} name={dialog.gone} action="Remove" close={close} run={async () => { await drop(`/settee/slo/${part(bucket)}/${part(dialog.gone)}`); note(`${dialog.gone} is removed.`); }}>
          <p>What has been counted for it is forgotten. No alert tells when it is broken.</p>
        </Confirm>
      ) : null}
    </section>
  );
}

/** Operations that clients tell of, in words. */
const TOLD = {
  kv_retrieval: 'Reads',
  kv_mutation_nondurable: 'Writes',
  kv_mutation_durable: 'Durable writes',
  query: 'Queries',
  search: 'Searches',
  analytics: 'Queries of analytics',
  management: 'Management',
  eventing: 'Eventing',
};
const SERVICES = { kv: 'Documents', query: 'Queries', search: 'Searches', analytics: 'Analytics', management: 'Management', eventing: 'Eventing' };

/** How many took no longer than each bound: no more lines than there are differences. */
function Steps({ row }) {
  const told = row.steps.filter(({ withinMs, count: within }, at) => withinMs !== null && within > (row.steps[at - 1]?.count ?? 0));
  const slower = row.count - (told.at(-1)?.count ?? 0);
  return (
    <>
      {told.map(({ withinMs, count: within }) => <div key={withinMs}><span class="even">{percent((within / row.count) * 100)} within {micros(withinMs * 1000)}</span></div>)}
      {slower > 0 ? <div class="trouble even">{count(slower)} took longer</div> : null}
    </>
  );
}

/** What clients measured themselves, the network included, by the node that their operations went to. */
function ByClients({ bucket }) {
  const seen = useAsk(`/settee/sdk/${part(bucket)}`, 10_000);
  if (seen.error?.status === 403) return null;
  const nodeOf = { title: 'Node', value: (row) => row.node, show: (row) => <span class="even">{row.node}</span> };
  const operations = [
    { title: 'Operation', value: (row) => TOLD[row.operation] ?? row.operation },
    nodeOf,
    { title: 'Operations', value: (row) => row.count, show: (row) => count(row.count), isNumber: true },
    { title: 'Mean', value: (row) => row.sumMs / row.count, show: (row) => micros((row.sumMs / row.count) * 1000), isNumber: true },
    { title: 'So many', value: (row) => row.steps[0]?.count / row.count, show: (row) => <Steps row={row} /> },
  ];
  const requests = [
    { title: 'Service', value: (row) => SERVICES[row.service] ?? row.service },
    nodeOf,
    { title: 'Requests', value: (row) => row.total, show: (row) => count(row.total), isNumber: true },
    { title: 'Given up after a time', value: (row) => row.timedOut, show: (row) => (row.timedOut > 0 ? <span class="trouble">{count(row.timedOut)}</span> : '0'), isNumber: true },
    { title: 'Cancelled', value: (row) => row.canceled, show: (row) => count(row.canceled), isNumber: true },
  ];
  const told = seen.data;
  return (
    <section class="card" aria-labelledby="clients">
      <h2 id="clients">As clients see it</h2>
      <Trouble error={told && seen.error} />
      {told?.missingNodes.length ? <p class="trouble">Without what these nodes were told: {told.missingNodes.join(', ')}.</p> : null}
      {told ? (
        <>
          <Table caption="Operations as clients see them" columns={operations} rows={told.operations} keyOf={(row) => `${row.operation} ${row.node}`} empty="No client has told of this bucket. SDKs that can tell do so when telemetry is on, on the page Settings." />
          {told.requests.length ? <Table caption="Requests as clients count them" columns={requests} rows={told.requests} keyOf={(row) => `${row.service} ${row.node}`} /> : null}
        </>
      ) : <Loading of={seen} />}
      <p class="help">Measured by SDKs, the way there and back included, since the nodes were started.{Number.isFinite(told?.clients) ? ` Clients that tell now: ${count(told.clients)}.` : ''}</p>
    </section>
  );
}

/** Operations that took half a second or longer, with what they spent it on. */
function Slow({ bucket }) {
  const seen = useAsk('/settee/slow', 5000);
  if (seen.error?.status === 403) return null;
  const rows = (seen.data?.operations ?? []).filter((row) => row.bucket === bucket).map((row, number) => ({ ...row, number }));
  const columns = [
    { title: 'When', value: (row) => row.number, show: (row) => <span class="even">{moment(Date.parse(row.at))}</span> },
    { title: 'Operation', value: (row) => row.operation, show: (row) => (row.count > 1 ? `${row.operation}, ${row.count} together` : row.operation) },
    { title: 'Took', value: (row) => row.tookUs, show: (row) => micros(row.tookUs), isNumber: true },
    { title: 'Of that', value: (row) => row.phases[0]?.phase, show: (row) => row.phases.filter(({ us }) => us > 0).map(({ phase, us }) => <div key={phase}>{micros(us)} {PHASES[phase] ?? phase}</div>) },
    { title: 'Client', value: (row) => row.client ?? '', show: (row) => (row.client === null ? '' : <>{row.user} from <span class="even">{row.client}</span>{row.agent ? <div class="help">{row.agent}</div> : null}</>) },
    { title: 'Node', value: (row) => row.node },
  ];
  return (
    <section class="card" aria-labelledby="slow">
      <h2 id="slow">Slow operations</h2>
      <Trouble error={seen.error} />
      {seen.data?.missingNodes.length ? <p class="trouble">These nodes do not say what was slow: {seen.data.missingNodes.join(', ')}.</p> : null}
      {seen.data ? <Table caption="Slow operations" columns={columns} rows={rows.slice(0, 50)} keyOf={(row) => row.number} empty="No operation has taken half a second of late." /> : seen.error ? null : <Loading of={seen} />}
    </section>
  );
}

function One({ bucket, buckets, operation }) {
  const [zoom, setZoom] = useState('minutes');
  const [kind, setKind] = useState('get');
  const wanted = operation ?? kind;
  const place = `/settee/latency/${part(bucket)}?zoom=${zoom}&operation=${part(wanted)}`;
  const seen = usePoll(() => ask(place), ZOOMS[zoom][1], [place]);
  const told = seen.data;
  const names = told ? Object.keys(told.operations) : [];
  if (told && !operation && names.length && !names.includes(kind)) setKind(names[0]);
  const until = told?.timestamps.at(-1);
  return (
    <Page title="Latency">
      <div class="bar">
        <Field label="Bucket" value={bucket} onChange={(event) => go('latency', event.currentTarget.value)}>
          {buckets.map(({ name }) => <option key={name} value={name} selected={name === bucket}>{name}</option>)}
        </Field>
        <Field label="Operation" value={wanted} onChange={(event) => go('latency', bucket, event.currentTarget.value)}>
          {[...new Set([...names, wanted])].map((name) => <option key={name} value={name} selected={name === wanted}>{name}</option>)}
        </Field>
        <div class="buttons" role="group" aria-label="Time shown">
          {Object.entries(ZOOMS).map(([one, [title]]) => <button key={one} type="button" class="small" aria-pressed={zoom === one} onClick={() => setZoom(one)}>{title}</button>)}
        </div>
      </div>
      <Trouble error={told && seen.error} />
      {told?.missingNodes.length ? <p class="trouble">Without what these nodes have counted: {told.missingNodes.join(', ')}.</p> : null}
      <div class="cards">
        <section class="card" aria-label="Over time">
          {told ? told.operations[wanted]?.histograms ? <Percentiles told={told} operation={wanted} /> : <p class="quiet">No request of this kind has come in this time.</p> : <Loading of={seen} />}
          {until ? <p class="help">Until {clock(until + told.stepSecs * 1000)}, in steps of {told.stepSecs} s.</p> : null}
        </section>
        <Objectives bucket={bucket} />
        {told ? (
          <section class="card" aria-labelledby="operations">
            <h2 id="operations">By operation</h2>
            <Operations told={told} bucket={bucket} />
          </section>
        ) : null}
        {told ? <Phases told={told} /> : null}
        <ByClients bucket={bucket} />
        <Slow bucket={bucket} />
      </div>
    </Page>
  );
}

export function Latency({ path: [bucket, operation] }) {
  const seen = useAsk('/pools/default/buckets?skipMap=true');
  if (!seen.data) return <Page title="Latency"><Loading of={seen} /></Page>;
  const chosen = bucket ?? seen.data[0]?.name;
  if (!chosen) return <Page title="Latency"><p class="quiet">There is no bucket yet. <a href={to('buckets')}>Make one</a></p></Page>;
  return <One key={`${chosen} ${operation}`} bucket={chosen} buckets={seen.data} operation={operation} />;
}
