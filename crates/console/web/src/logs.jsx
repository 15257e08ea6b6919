// What has happened to the cluster, and the last lines of the node's own log, as the node that is asked has them.
import { useState } from 'preact/hooks';
import { ask, fetched, part, post } from './api.js';
import { moment } from './format.js';
import { Badge, Check, Field, Loading, Page, Table, Trouble, attempt } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { to } from './route.js';

const columns = [
  { title: 'When', value: (row) => -row.tstamp, show: (row) => <time class="even" dateTime={row.serverTime}>{moment(row.tstamp)}</time> },
  { title: 'How bad', value: (row) => row.type, show: (row) => <Badge kind={row.type === 'info' ? '' : 'warn'}>{row.type}</Badge> },
  { title: 'What', value: (row) => row.text },
  { title: 'From', value: (row) => row.module },
];
const LEVELS = { error: 'Errors', warn: 'Warnings and errors', info: 'All but details' };
const KINDS = { ERROR: 'bad', WARN: 'warn' };

/** A line of the log in its parts: when, how bad, what. */
function parted({ number, text }) {
  const [, at, level, rest] = /^(\S+)\s+(ERROR|WARN|INFO|DEBUG|TRACE)\s+(.*)$/s.exec(text) ?? [];
  return { number, at: Date.parse(at), level: level ?? '', text: rest ?? text };
}

const lines = [
  { title: 'When', value: (row) => -row.number, show: (row) => <span class="even">{Number.isFinite(row.at) ? moment(row.at) : ''}</span> },
  { title: 'How bad', value: (row) => row.level, show: (row) => <Badge kind={KINDS[row.level]}>{row.level.toLowerCase()}</Badge> },
  { title: 'What', value: (row) => row.text, show: (row) => <code>{row.text}</code> },
];

/** Users who may not see a node's log are told nothing of it. */
function OfNode() {
  const [level, setLevel] = useState('warn');
  const [contains, setContains] = useState('');
  const place = `/settee/logs?${new URLSearchParams({ level, contains, limit: 200 })}`;
  const seen = usePoll(() => ask(place), 5000, [place]);
  if (seen.error?.status === 403) return null;
  return (
    <section class="card" aria-labelledby="own">
      <h2 id="own">Log of this node</h2>
      <div class="bar">
        <Field label="Lines" value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
          {Object.entries(LEVELS).map(([value, title]) => <option key={value} value={value} selected={value === level}>{title}</option>)}
        </Field>
        <Field label="With this text" value={contains} spellcheck={false} autocomplete="off" onInput={(event) => setContains(event.currentTarget.value)} />
      </div>
      <Trouble error={seen.data && seen.error} />
      {seen.data ? <Table caption="Log of this node" columns={lines} rows={seen.data.lines.map(parted)} keyOf={(row) => row.number} empty="No such line since the node was started." /> : <Loading of={seen} />}
      <p class="help">The last 200 such lines of {seen.data?.node ?? 'this node'}. <code>settee logs</code> shows those of all nodes.</p>
    </section>
  );
}

const PARTS = { collected: ['good', 'collected'], failed: ['bad', 'failed'], started: ['', 'is being collected'], starting: ['', 'begins'] };

const parts = [
  { title: 'Node', value: (row) => row.node },
  { title: 'State', value: (row) => row.status, show: (row) => <Badge kind={PARTS[row.status]?.[0]}>{PARTS[row.status]?.[1] ?? row.status}</Badge> },
  { title: 'Archive, on that node', value: (row) => row.path ?? '', show: (row) => (row.path ? <code>{row.path}</code> : row.why ?? '–') },
];

/** Has the browser keep something under a name. */
function save(blob, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** An archive of each node for somebody who helps. Only users with every right may have them made. */
function Collect() {
  const seen = usePoll(() => ask('/pools/default/tasks').then((tasks) => ({ last: tasks.find((task) => task.type === 'clusterLogsCollection') })), 3000);
  const [isRedacted, setRedacted] = useState(true);
  const last = seen.data?.last;
  const isRunning = last?.status === 'running';
  const start = () => post('/controller/startLogsCollection', { nodes: '*', logRedactionLevel: isRedacted ? 'partial' : 'none' });
  const download = async (node) => {
    const { blob, name } = await fetched(`/settee/archive?node=${part(`ns_1@${node}`)}`);
    save(blob, name ?? 'collected.tar');
  };
  const columnsOfParts = [
    ...parts,
    {
      title: 'Download', value: () => '',
      show: ({ node, status }) => (status === 'collected'
        ? <button type="button" aria-label={`Download that of ${node}`} onClick={() => attempt(() => download(node))}>Download</button> : '–'),
    },
  ];
  const act = async (what, said) => { await attempt(what, said); seen.refresh(); };
  const rows = Object.entries(last?.perNode ?? {}).map(([node, { status, path, collectionOutput: why }]) => ({ node: node.replace('ns_1@', ''), status, path, why }));
  return (
    <section class="card" aria-labelledby="collect">
      <div class="head">
        <h2 id="collect">Archives for somebody who helps</h2>
        {isRunning ? <button type="button" onClick={() => act(() => post('/controller/cancelLogsCollection'), 'Nodes stop collecting.')}>Stop it</button>
          : <button type="button" disabled={!seen.data} onClick={() => act(start, 'Every node makes an archive.')}>Make archives</button>}
      </div>
      <Trouble error={seen.error} />
      <Check label="Replace names of users" checked={isRedacted} onChange={(event) => setRedacted(event.currentTarget.checked)} />
      {last ? <Table caption="Archives" columns={columnsOfParts} rows={rows} keyOf={(row) => row.node} /> : <p class="quiet">No archive was made of late.</p>}
      <p class="help">Logs, figures and settings, without documents and secrets. Each node keeps its own archive; <code>settee collect</code> makes one of all.</p>
    </section>
  );
}

export function Logs() {
  const seen = useAsk('/logs', 5000);
  return (
    <Page title="Logs">
      <div class="cards">
        <section class="card" aria-labelledby="changes">
          <h2 id="changes">Changes of the cluster</h2>
          <Trouble error={seen.data && seen.error} />
          {seen.data ? <Table caption="Changes of the cluster" columns={columns} rows={seen.data.list} keyOf={(row) => `${row.tstamp} ${row.text}`} empty="Nothing has changed since this node was started." /> : <Loading of={seen} />}
          <p class="help">Since this node was started, 1,000 at most. The page <a href={to('audit')}>Audit</a> says who has done what.</p>
        </section>
        <OfNode />
        <Collect />
      </div>
    </Page>
  );
}
