// Clients: the connections with the most load, the addresses that most operations come from, and documents that many operations go to.
import { useState } from 'preact/hooks';
import { ask, part } from './api.js';
import { bytes, count, duration, percent } from './format.js';
import { Badge, Field, Loading, Page, Table, Trouble } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { go, to } from './route.js';

const share = (row) => (row.share == null ? '–' : percent(row.share * 100));

const kinds = (row) => (
  <span class="even">
    {row.isTls ? <Badge>TLS</Badge> : null} {row.isStream ? <Badge>stream</Badge> : null} {row.isInternal ? <Badge>node</Badge> : null}
  </span>
);

const connections = [
  { title: 'Operations/s', value: (row) => -row.operationsPerSecond, show: (row) => count(row.operationsPerSecond), isNumber: true },
  { title: 'Client', value: (row) => row.client, show: (row) => <><span class="even">{row.client || '–'}</span> {kinds(row)}</> },
  { title: 'User', value: (row) => row.user, show: (row) => row.user || <span class="quiet">nobody</span> },
  { title: 'Bucket', value: (row) => row.bucket, show: (row) => row.bucket || <span class="quiet">none</span> },
  { title: 'Program', value: (row) => row.agent, show: (row) => row.agent || '–' },
  { title: 'Received/s', value: (row) => row.bytesReadPerSecond, show: (row) => bytes(row.bytesReadPerSecond), isNumber: true },
  { title: 'Sent/s', value: (row) => row.bytesWrittenPerSecond, show: (row) => bytes(row.bytesWrittenPerSecond), isNumber: true },
  { title: 'Silent for', value: (row) => row.idleMs, show: (row) => duration(row.idleMs / 1000), isNumber: true },
  { title: 'Node', value: (row) => row.node, show: (row) => <span class="even">{row.node}</span> },
];

const addresses = [
  { title: 'Operations/s', value: (row) => -row.operationsPerSecond, show: (row) => count(row.operationsPerSecond), isNumber: true },
  { title: 'Address', value: (row) => row.address },
  { title: 'Bucket', value: (row) => row.bucket },
  { title: 'Of its bucket', value: (row) => row.share, show: share, isNumber: true },
  { title: 'Node', value: (row) => row.node, show: (row) => <span class="even">{row.node}</span> },
];

const keys = (bucket) => [
  { title: 'Operations/s', value: (row) => -row.operationsPerSecond, show: (row) => (row.operationsPerSecond == null ? '–' : count(row.operationsPerSecond)), isNumber: true },
  { title: 'Document', value: (row) => row.key, show: (row) => <code>{row.key}</code> },
  { title: 'Collection', value: (row) => `${row.scope}.${row.collection}`, show: (row) => <a href={to('documents', bucket, row.scope, row.collection)}>{row.scope}.{row.collection}</a> },
  { title: 'Of its bucket', value: (row) => row.share, show: share, isNumber: true },
  { title: 'Node', value: (row) => row.node, show: (row) => <span class="even">{row.node}</span> },
];

const Silent = ({ nodes = [] }) => (nodes.length ? <p class="trouble">These nodes do not say anything: {nodes.join(', ')}. <a href={to('servers')}>Servers</a></p> : null);

function Hot({ bucket }) {
  const seen = usePoll(() => ask(`/settee/hot/${part(bucket)}`), 3000, [bucket]);
  const isRefused = seen.error?.status === 403;
  return (
    <section class="card" aria-labelledby="hot">
      <h2 id="hot">Hot documents of {bucket}</h2>
      <Trouble error={isRefused ? new Error(`Keys are content: your user may not read documents of ${bucket}.`) : seen.data && seen.error} />
      <Silent nodes={seen.data?.missingNodes} />
      {seen.data ? <Table caption={`Hot documents of ${bucket}`} columns={keys(bucket)} rows={seen.data.keys} keyOf={(row) => `${row.node} ${row.scope} ${row.collection} ${row.key}`} empty="No document takes many operations." /> : isRefused ? null : <Loading of={seen} />}
      <p class="help">By one operation in 128 of the last seconds. An alert fires where one takes a quarter of its bucket’s operations on a node, and 5,000 a second.</p>
    </section>
  );
}

function Connections() {
  const seen = useAsk('/settee/connections?limit=100', 4000);
  const [only, setOnly] = useState('');
  if (seen.error?.status === 403) return <p class="card">Connections name users and addresses: your user may not see them.</p>;
  if (!seen.data) return <section class="card"><Loading of={seen} /></section>;
  const fits = (row) => [row.client, row.user, row.bucket, row.agent, row.node].some((text) => text?.includes(only));
  const open = seen.data.open.reduce((sum, one) => sum + one.connections, 0);
  return (
    <>
      <section class="card" aria-labelledby="connections">
        <h2 id="connections">Connections</h2>
        <Trouble error={seen.error} />
        <Silent nodes={seen.data.missingNodes} />
        <p>{count(open)} are open. Those with the most load:</p>
        <div class="bar"><Field label="Only those with this text" value={only} spellcheck={false} autocomplete="off" onInput={(event) => setOnly(event.currentTarget.value)} /></div>
        <Table caption="Connections" columns={connections} rows={seen.data.connections.filter(fits)} keyOf={(row) => `${row.node} ${row.client} ${row.user}`} empty="No connection is so." />
      </section>
      <section class="card" aria-labelledby="addresses">
        <h2 id="addresses">Addresses</h2>
        <Table caption="Addresses" columns={addresses} rows={seen.data.clients} keyOf={(row) => `${row.node} ${row.bucket} ${row.address}`} empty="No address sends many operations." />
      </section>
    </>
  );
}

export function Clients({ path: [bucket] }) {
  const buckets = useAsk('/pools/default/buckets?skipMap=true');
  const chosen = bucket ?? buckets.data?.[0]?.name;
  if (!buckets.data) return <Page title="Clients"><Loading of={buckets} /></Page>;
  return (
    <Page title="Clients">
      {chosen ? (
        <div class="bar">
          <Field label="Bucket" value={chosen} onChange={(event) => go('clients', event.currentTarget.value)}>
            {buckets.data.map(({ name }) => <option key={name} value={name} selected={name === chosen}>{name}</option>)}
          </Field>
        </div>
      ) : null}
      <div class="cards">
        {chosen ? <Hot bucket={chosen} /> : null}
        <Connections />
      </div>
    </Page>
  );
}
