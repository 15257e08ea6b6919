// Buckets: the list, and one bucket with its charts, its settings, and what can be done to it.
import { useState } from 'preact/hooks';
import { ask, drop, part, post } from './api.js';
import { Chart } from './chart.jsx';
import { bytes, count, micros, percent } from './format.js';
import { OfBucket } from './latency.jsx';
import { Badge, Check, Confirm, Dialog, Field, Form, Loading, Meter, Page, Table, Trouble, attempt, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { go, to } from './route.js';

const MIB = 1024 * 1024;
const place = (name) => `/pools/default/buckets/${part(name)}`;
const KINDS = { membase: 'Couchbase', ephemeral: 'Ephemeral', memcached: 'Memcached' };

const columns = [
  { title: 'Name', value: (row) => row.name, show: (row) => <a href={to('buckets', row.name)}>{row.name}</a> },
  { title: 'Type', value: (row) => KINDS[row.bucketType] ?? row.bucketType },
  { title: 'Documents', value: (row) => row.basicStats.itemCount, show: (row) => count(row.basicStats.itemCount), isNumber: true },
  { title: 'Operations/s', value: (row) => row.basicStats.opsPerSec, show: (row) => count(row.basicStats.opsPerSec), isNumber: true },
  { title: 'Memory', value: (row) => row.basicStats.memUsed / row.quota.ram, show: (row) => <span class="even"><Meter value={row.basicStats.memUsed} of={row.quota.ram} label={`Memory of ${row.name}`} /> {bytes(row.basicStats.memUsed)} of {bytes(row.quota.ram)}</span> },
  { title: 'On disk', value: (row) => row.basicStats.diskUsed, show: (row) => bytes(row.basicStats.diskUsed), isNumber: true },
  { title: 'Replicas', value: (row) => row.replicaNumber, isNumber: true },
];

function List() {
  const seen = useAsk('/pools/default/buckets?skipMap=true', 2000);
  const [isMaking, setMaking] = useState(false);
  return (
    <Page title="Buckets" actions={<button type="button" class="primary" onClick={() => setMaking(true)}>New bucket</button>}>
      <section class="card">
        <Trouble error={seen.data && seen.error} />
        {seen.data ? <Table caption="Buckets" columns={columns} rows={seen.data} keyOf={(row) => row.uuid} empty="There is no bucket yet. Make one to keep documents in." /> : <Loading of={seen} />}
      </section>
      {isMaking ? <Make close={() => setMaking(false)} made={(name) => { setMaking(false); note(`The bucket ${name} is there.`); go('buckets', name); }} /> : null}
    </Page>
  );
}

/** Settings that a new and an existing bucket have. */
const Shared = ({ errors, bucket }) => (
  <>
    <Field label="Memory quota on each node, in MiB" name="ramQuota" type="number" min="100" required defaultValue={bucket ? bucket.quota.rawRAM / MIB : 256} error={errors.ramQuota ?? errors.ramQuotaMB} />
    <Field label="Replicas" name="replicaNumber" defaultValue={String(bucket?.replicaNumber ?? 1)} error={errors.replicaNumber} help="Further copies of each document, on other nodes. A change takes effect with the next rebalance.">
      {[0, 1, 2, 3].map((one) => <option key={one} value={one} selected={one === (bucket?.replicaNumber ?? 1)}>{one}</option>)}
    </Field>
    <Field label="When memory is full" name="evictionPolicy" error={errors.evictionPolicy} disabled={bucket && bucket.bucketType !== 'membase'}>
      <option value="valueOnly" selected={bucket?.evictionPolicy !== 'fullEviction'}>Values leave memory; keys stay</option>
      <option value="fullEviction" selected={bucket?.evictionPolicy === 'fullEviction'}>Whole documents leave memory</option>
    </Field>
    <Field label="Least durability of writes" name="durabilityMinLevel" error={errors.durabilityMinLevel}>
      {[['none', 'None'], ['majority', 'Majority'], ['majorityAndPersistActive', 'Majority, and on disk at the active'], ['persistToMajority', 'On disk at a majority']].map(([value, title]) => (
        <option key={value} value={value} selected={value === (bucket?.durabilityMinLevel ?? 'none')}>{title}</option>
      ))}
    </Field>
    <Field label="Longest life of a document, in seconds" name="maxTTL" type="number" min="0" defaultValue={bucket?.maxTTL ?? 0} error={errors.maxTTL} help="0: documents live until they are deleted." />
    <Check label="May be flushed (all its documents deleted at once)" name="flushEnabled" value="1" defaultChecked={Boolean(bucket?.controllers?.flush)} />
  </>
);

const tidy = ({ flushEnabled, ...fields }) => ({ ...fields, flushEnabled: flushEnabled ? 1 : 0 });

function Make({ close, made }) {
  const [kind, setKind] = useState('couchbase');
  const send = async ({ name, ...fields }) => {
    const { evictionPolicy, durabilityMinLevel, ...others } = tidy(fields);
    const kept = kind === 'couchbase' ? { evictionPolicy, durabilityMinLevel } : {};
    await post('/pools/default/buckets', { name, bucketType: kind, ...others, ...kept });
    made(name);
  };
  return (
    <Dialog title="New bucket" close={close}>
      <Form action="Make it" send={send} cancel={close}>
        {(errors) => (
          <>
            <Field label="Name" name="name" required maxLength={100} autocomplete="off" spellcheck={false} autofocus error={errors.name} />
            <Field label="Type" value={kind} onChange={(event) => setKind(event.currentTarget.value)} error={errors.bucketType}>
              <option value="couchbase">Couchbase: on disk and in memory</option>
              <option value="ephemeral">Ephemeral: in memory alone</option>
            </Field>
            <Shared errors={errors} />
          </>
        )}
      </Form>
    </Dialog>
  );
}

const Edit = ({ bucket, close }) => (
  <Dialog title={`Settings of ${bucket.name}`} close={close}>
    <Form action="Save" cancel={close} send={async (fields) => { await post(place(bucket.name), tidy(fields)); note('Saved.'); close(); }}>
      {(errors) => <Shared errors={errors} bucket={bucket} />}
    </Form>
  </Dialog>
);

/** Which latencies are shown beside charts of so long a time; those are kept for a day. */
const LATENCIES = { minute: 'minutes', hour: 'hour', day: 'day' };
const ZOOMS = { minute: 'Minute', hour: 'Hour', day: 'Day', week: 'Week', month: 'Month', year: 'Year' };

/** The charts of a bucket: a title, the statistics it shows, how figures read. */
const CHARTS = [
  { title: 'Operations per second', of: [['All', 'ops'], ['Reads', 'cmd_get'], ['Writes', 'cmd_set']] },
  { title: 'Memory', show: bytes, of: [['Used', 'mem_used'], ['High watermark', 'ep_mem_high_wat', true], ['Low watermark', 'ep_mem_low_wat', true]], help: 'Above the high watermark values leave memory until the low one is reached.' },
  { title: 'Disk queue', of: [['Waiting', 'disk_write_queue'], ['Written per second', 'ep_diskqueue_drain']] },
  { title: 'Documents in memory', show: percent, of: [['Active', 'vb_active_resident_items_ratio'], ['Replicas', 'vb_replica_resident_items_ratio']] },
  { title: 'Reads from disk', of: [['Per second', 'ep_bg_fetched']] },
  { title: 'Time of a disk read', show: micros, of: [['Mean', 'avg_bg_wait_time']] },
  { title: 'Replication: changes still to send', of: [['To replicas', 'ep_dcp_replica_items_remaining'], ['To other consumers', 'ep_dcp_other_items_remaining']] },
  { title: 'Writes that wait', of: [['Waiting', 'settee_paced_waiting'], ['Refused for memory', 'ep_tmp_oom_errors']] },
];

function Charts({ name, nodes }) {
  const [zoom, setZoom] = useState('minute');
  const [node, setNode] = useState('');
  const from = node ? `${place(name)}/nodes/${part(node)}` : place(name);
  const seen = usePoll(() => ask(`${from}/stats?zoom=${zoom}`), zoom === 'minute' ? 2000 : 30_000, [from, zoom]);
  const samples = seen.data?.op.samples;
  return (
    <section aria-label="Charts">
      <div class="bar">
        {nodes.length > 1 ? (
          <Field label="Figures of" value={node} onChange={(event) => setNode(event.currentTarget.value)}>
            <option value="">all nodes</option>
            {nodes.map((one) => <option key={one} value={one} selected={one === node}>{one}</option>)}
          </Field>
        ) : null}
        <div class="buttons" role="group" aria-label="Time shown">
          {Object.entries(ZOOMS).map(([one, title]) => <button key={one} type="button" class="small" aria-pressed={zoom === one} onClick={() => setZoom(one)}>{title}</button>)}
        </div>
      </div>
      <Trouble error={samples && seen.error} />
      {samples ? (
        <div class="grid">
          {CHARTS.map(({ title, show, of, help }) => (
            <div class="card" key={title}>
              <Chart title={title} show={show} help={help} times={samples.timestamp} series={of.map(([label, stat, isLimit]) => ({ name: label, values: samples[stat] ?? [], isLimit }))} />
            </div>
          ))}
        </div>
      ) : <Loading of={seen} />}
      {LATENCIES[zoom] ? <OfBucket bucket={name} zoom={LATENCIES[zoom]} /> : <p class="quiet">Latencies are kept for a day.</p>}
    </section>
  );
}

const Facts = ({ bucket }) => (
  <section class="card" aria-label="In short">
    <dl class="facts">
      {[
        ['Documents', count(bucket.basicStats.itemCount)],
        ['Operations/s', count(bucket.basicStats.opsPerSec)],
        ['Memory', `${bytes(bucket.basicStats.memUsed)} of ${bytes(bucket.quota.ram)}`],
        ['On disk', bytes(bucket.basicStats.diskUsed)],
        ['Type', KINDS[bucket.bucketType] ?? bucket.bucketType],
        ['Replicas', bucket.replicaNumber],
        ['Eviction', bucket.evictionPolicy],
        ['vBuckets', bucket.numVBuckets],
      ].map(([title, value]) => <div key={title}><dt>{title}</dt><dd>{value}</dd></div>)}
    </dl>
  </section>
);

function One({ name }) {
  const seen = useAsk(`${place(name)}?skipMap=true`, 2000);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  if (seen.error?.status === 404) return <Page title={name}><p class="trouble">There is no bucket of that name. <a href={to('buckets')}>All buckets</a></p></Page>;
  if (!seen.data) return <Page title={name}><Loading of={seen} /></Page>;
  const bucket = seen.data;
  const compact = () => attempt(() => post(`${place(name)}/controller/compactBucket`), 'Compaction has begun.');
  return (
    <Page
      title={name}
      actions={(
        <>
          <button type="button" onClick={() => setDialog('edit')}>Settings</button>
          {bucket.bucketType === 'membase' ? <button type="button" onClick={compact}>Compact</button> : null}
          {bucket.controllers.flush ? <button type="button" onClick={() => setDialog('flush')}>Flush</button> : null}
          <button type="button" onClick={() => setDialog('drop')}>Drop</button>
        </>
      )}
    >
      <p class="links"><a href={to('buckets')}>All buckets</a> <a href={to('latency', name)}>Latency</a> <a href={to('clients', name)}>Clients</a> <a href={to('documents', name)}>Documents</a> <a href={to('collections', name)}>Collections</a> <a href={to('views', name)}>Views</a></p>
      <Trouble error={seen.error} />
      {bucket.nodes?.some((node) => node.status === 'unhealthy') ? <p><Badge kind="bad">A node of this bucket does not answer</Badge></p> : null}
      <Facts bucket={bucket} />
      <Charts name={name} nodes={(bucket.nodes ?? []).map((node) => node.hostname)} />
      {dialog === 'edit' ? <Edit bucket={bucket} close={close} /> : null}
      {dialog === 'flush' ? (
        <Confirm title={`Flush ${name}`} name={name} action="Delete all documents" close={close} run={async () => { await post(`${place(name)}/controller/doFlush`); note('The bucket is empty.'); }}>
          <p>All {count(bucket.basicStats.itemCount)} documents of the bucket are deleted. They cannot be brought back.</p>
        </Confirm>
      ) : null}
      {dialog === 'drop' ? (
        <Confirm title={`Drop ${name}`} name={name} action="Drop the bucket" close={() => setDialog(undefined)} run={async () => { await drop(place(name)); note(`${name} is dropped.`); go('buckets'); }}>
          <p>The bucket and its {count(bucket.basicStats.itemCount)} documents are deleted on every node. They cannot be brought back.</p>
        </Confirm>
      ) : null}
    </Page>
  );
}

export const Buckets = ({ path: [name] }) => (name ? <One key={name} name={name} /> : <List />);
