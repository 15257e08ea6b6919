// Servers: who is a member, how each one is, and everything that changes that: adding, failing over, recovering, rebalancing.
import { useState } from 'preact/hooks';
import { ask, drop, post, put } from './api.js';
import { canBeForced, forced } from './force.js';
import { bytes, count, duration, percent } from './format.js';
import { Badge, Confirm, Dialog, Field, Form, Loading, Meter, Page, Table, Trouble, attempt, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';

const look = async () => {
  const [pool, tasks] = await Promise.all([ask('/pools/default'), ask('/pools/default/tasks').catch(() => [])]);
  return { pool, rebalance: tasks.find((task) => task.type === 'rebalance') };
};

/** How a node is: a word, and how much that matters. */
function standing(node) {
  // A node that is to be recovered counts as added, as in Couchbase.
  if (node.clusterMembership !== 'active' && (node.recoveryType ?? 'none') !== 'none') return [`waits for a rebalance (${node.recoveryType} recovery)`, 'warn'];
  if (node.clusterMembership === 'inactiveFailed') return ['failed over', 'bad'];
  if (node.status === 'unhealthy') return ['does not answer', 'bad'];
  if (node.clusterMembership === 'inactiveAdded') return ['added, waits for a rebalance', 'warn'];
  if (node.status === 'warmup') return ['loads its buckets', 'warn'];
  return ['healthy', 'good'];
}

const used = (node) => node.memoryTotal - node.memoryFree;

/** How old a node's figures are, where it has said none of late. */
const ageOf = (node) => node.settee?.figuresAgeSecs;

/** A figure of a node; one that is old is marked, for eyes and for screen readers. */
const Figure = ({ node, children }) => (ageOf(node) === undefined ? <>{children}</> : <span class="old">{children}<span class="hidden"> (old)</span></span>);

function columns(act, hasGroups) {
  const all = [
    { title: 'Node', value: (row) => row.hostname, show: (row) => <><b>{row.hostname}</b>{row.settee?.leads ? <> <Badge>leads</Badge></> : null}</> },
    { title: 'State', value: (row) => standing(row)[0], show: (row) => <><Badge kind={standing(row)[1]}>{standing(row)[0]}</Badge>{ageOf(row) === undefined ? null : <><br /><span class="quiet">figures of {duration(ageOf(row))} ago</span></>}</> },
    { title: 'Group', value: (row) => row.serverGroup, show: (row) => <span class="even">{row.serverGroup}</span> },
    { title: 'Processor', value: (row) => row.systemStats.cpu_utilization_rate, show: (row) => <Figure node={row}>{percent(row.systemStats.cpu_utilization_rate)}</Figure>, isNumber: true },
    { title: 'Memory', value: (row) => used(row) / row.memoryTotal, show: (row) => <Figure node={row}><Meter value={used(row)} of={row.memoryTotal} label={`Memory of ${row.hostname}`} /> <span class="even">{bytes(used(row))} of {bytes(row.memoryTotal)}</span></Figure> },
    { title: 'Documents', value: (row) => row.interestingStats.curr_items ?? 0, show: (row) => <Figure node={row}>{count(row.interestingStats.curr_items ?? 0)}<br /><span class="quiet">+ {count(row.interestingStats.vb_replica_curr_items ?? 0)} replicas</span></Figure>, isNumber: true },
    { title: 'Operations/s', value: (row) => row.interestingStats.ops ?? 0, show: (row) => <Figure node={row}>{count(row.interestingStats.ops ?? 0)}</Figure>, isNumber: true },
    { title: 'Up for', value: (row) => Number(row.uptime), show: (row) => <Figure node={row}>{duration(Number(row.uptime))}</Figure>, isNumber: true },
    { title: 'What can be done', show: (row) => <Actions node={row} act={act} /> },
  ];
  return all.filter(({ title }) => hasGroups || title !== 'Group');
}

function Actions({ node, act }) {
  const button = (title, what) => <button type="button" class="small" onClick={() => act(what, node)}>{title}<span class="hidden"> {node.hostname}</span></button>;
  if (node.clusterMembership === 'inactiveFailed') return <>{button('Recover', 'recover')} {button('Remove', 'remove')}</>;
  return <>{node.clusterMembership === 'active' ? button('Fail over', 'failover') : null} {button('Remove', 'remove')}</>;
}

function moves(done, total) {
  if (total == null) return 'working out which vBuckets change';
  return total ? `${count(done ?? 0)} of ${count(total)} moves` : 'no vBucket has to be copied';
}

function Progress({ task, stop }) {
  if (task?.status !== 'running') {
    const failed = task?.errorMessage;
    return failed ? <p class="trouble" role="alert">{failed} Start it again once that is mended: it goes on where it was.</p> : null;
  }
  const { etaSecs, waitsFor, movesDone, movesTotal } = task.settee ?? {};
  const nodes = Object.entries(task.perNode ?? {}).map(([name, { progress }]) => ({ name, progress }));
  return (
    <section class="card" aria-label="Rebalance">
      <div class="head">
        <h2>{task.subtype === 'gracefulFailover' ? 'A graceful failover is running' : 'A rebalance is running'}</h2>
        <button type="button" onClick={stop}>Stop it</button>
      </div>
      <p aria-live="polite"><b>{percent(task.progress)}</b> done, {moves(movesDone, movesTotal)}{etaSecs ? `, ${duration(etaSecs)} left` : ''}.</p>
      {waitsFor ? <p class="trouble">It waits: {waitsFor}</p> : null}
      <Table caption="Rebalance by node" rows={nodes} keyOf={(row) => row.name} columns={[
        { title: 'Node', value: (row) => row.name.replace('ns_1@', '') },
        { title: 'Done', value: (row) => row.progress, show: (row) => <><Meter isProgress value={row.progress} of={100} label={`Progress of ${row.name}`} /> {percent(row.progress)}</> },
      ]} />
    </section>
  );
}

const Add = ({ close }) => (
  <Dialog title="Add a server" close={close}>
    <Form
      action="Add it"
      cancel={close}
      send={async ({ hostname, user, password }) => {
        await post('/controller/addNode', { hostname, user, password, services: 'kv' });
        note(`${hostname} is added. Rebalance to give it data.`);
        close();
      }}
    >
      <p class="help">The server has to run Settee and must not belong to another cluster. What it holds is replaced.</p>
      <Field label="Its address" name="hostname" required autofocus spellcheck={false} help="As 10.0.0.5, or https://10.0.0.5:18091." />
      <Field label="Its administrator’s name" name="user" defaultValue="Administrator" help="A new server takes any name and password." />
      <Field label="Its administrator’s password" name="password" type="password" autocomplete="off" />
    </Form>
  </Dialog>
);

const FailOver = ({ node, close }) => (
  <Dialog title={`Fail over ${node.hostname}`} close={close}>
    <Form
      action="Fail over"
      isDangerous
      cancel={close}
      send={async ({ how, ...fields }) => {
        const more = how === 'graceful' ? forced(fields) : {};
        await post(how === 'graceful' ? '/controller/startGracefulFailover' : '/controller/failOver', { otpNode: node.otpNode, ...more });
        note(how === 'graceful' ? 'The graceful failover has begun.' : `${node.hostname} is failed over.`);
        close();
      }}
    >
      <Field label="How" name="how" help="A graceful failover hands everything over first and loses nothing; the node has to answer. A hard one takes the node out at once: what no replica has yet is lost.">
        <option value="graceful" selected={node.status !== 'unhealthy'}>Gracefully</option>
        <option value="hard" selected={node.status === 'unhealthy'}>At once</option>
      </Field>
    </Form>
  </Dialog>
);

const Recover = ({ node, close }) => (
  <Dialog title={`Recover ${node.hostname}`} close={close}>
    <Form
      action="Recover"
      cancel={close}
      send={async ({ recoveryType }) => {
        await post('/controller/setRecoveryType', { otpNode: node.otpNode, recoveryType });
        note('Rebalance to give the node its data back.');
        close();
      }}
    >
      <Field label="From what" name="recoveryType">
        <option value="delta">What it has on disk (fast)</option>
        <option value="full">Nothing: all data is sent anew</option>
      </Field>
    </Form>
  </Dialog>
);

const rebalance = (pool, leaving = [], fields = {}) => post('/controller/rebalance', {
  knownNodes: pool.nodes.map((node) => node.otpNode).join(','),
  ejectedNodes: leaving.join(','),
  ...forced(fields),
});

/** A rebalance was refused for want of room: why, and the way to have it all the same. */
const Force = ({ pool, refused, close }) => (
  <Dialog title="The rebalance was refused" close={close}>
    <Form
      action="Rebalance"
      refused={refused}
      cancel={close}
      send={async (fields) => {
        await rebalance(pool, [], fields);
        note('The rebalance has begun.');
        close();
      }}
    />
  </Dialog>
);

const Remove = ({ node, pool, close }) => (
  <Confirm
    title={`Remove ${node.hostname}`}
    name={node.hostname}
    action="Remove and rebalance"
    close={close}
    run={async (fields) => {
      if (node.clusterMembership === 'inactiveAdded') await post('/controller/ejectNode', { otpNode: node.otpNode });
      else await rebalance(pool, [node.otpNode], fields);
      note('The removal has begun.');
    }}
  >
    <p>{node.clusterMembership === 'inactiveFailed' ? 'What the node holds and no other one does is lost.' : 'A rebalance hands the data to the other nodes first; then the node begins anew, without data.'}</p>
  </Confirm>
);

/** Moves a node to another group: the whole division is sent, as of the version that was read. */
async function move({ uri, groups }, node, to) {
  const kept = ({ nodes }) => nodes.filter((one) => one.otpNode !== node).map(({ otpNode }) => ({ otpNode }));
  const all = groups.map((group) => ({ name: group.name, uri: group.uri, nodes: [...kept(group), ...(group.uri === to ? [{ otpNode: node }] : [])] }));
  await ask(uri, { method: 'PUT', text: JSON.stringify({ groups: all }) });
}

function GroupDialog({ dialog, division, close }) {
  const { what, group } = dialog;
  const nodes = division.groups.flatMap((one) => one.nodes);
  if (what === 'move') {
    return (
      <Dialog title="Move a server to another group" close={close}>
        <Form action="Move it" cancel={close} send={async ({ node, to }) => { await move(division, node, to); note('Rebalance to spread the copies over the groups.'); close(); }}>
          <Field label="Server" name="node">{nodes.map((one) => <option key={one.otpNode} value={one.otpNode}>{one.hostname}</option>)}</Field>
          <Field label="To the group" name="to">{division.groups.map((one) => <option key={one.uri} value={one.uri}>{one.name}</option>)}</Field>
        </Form>
      </Dialog>
    );
  }
  return (
    <Dialog title={group ? `Rename ${group.name}` : 'New group'} close={close}>
      <Form action={group ? 'Rename it' : 'Make it'} cancel={close} send={async ({ name }) => { await (group ? put(group.uri, { name }) : post('/pools/default/serverGroups', { name })); close(); }}>
        {(errors) => <Field label="Name" name="name" required maxLength={64} defaultValue={group?.name} autofocus spellcheck={false} error={errors.name} />}
      </Form>
    </Dialog>
  );
}

/** Groups: racks or zones. The copies of a document are kept in different ones. */
function Groups() {
  const seen = useAsk('/pools/default/serverGroups', 10_000);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  if (!seen.data) return null;
  const remove = async (group) => { await attempt(() => drop(group.uri), `The group ${group.name} is removed.`); seen.refresh(); };
  const columns = [
    { title: 'Group', value: (row) => row.name },
    { title: 'Servers', value: (row) => row.nodes.map((node) => node.hostname).join(', '), show: (row) => row.nodes.map((node) => node.hostname).join(', ') || <span class="quiet">none</span> },
    {
      title: 'What can be done',
      show: (row) => (
        <span class="even">
          <button type="button" class="small" onClick={() => setDialog({ what: 'name', group: row })}>Rename<span class="hidden"> {row.name}</span></button>{' '}
          {row.nodes.length || seen.data.groups.length < 2 ? null : <button type="button" class="small" onClick={() => remove(row)}>Remove<span class="hidden"> the group {row.name}</span></button>}
        </span>
      ),
    },
  ];
  return (
    <section class="card" aria-labelledby="groups">
      <div class="head">
        <h2 id="groups">Groups</h2>
        <div class="buttons">
          {seen.data.groups.length > 1 ? <button type="button" onClick={() => setDialog({ what: 'move' })}>Move a server</button> : null}
          <button type="button" onClick={() => setDialog({ what: 'name' })}>New group</button>
        </div>
      </div>
      <Table caption="Groups" columns={columns} rows={seen.data.groups} keyOf={(row) => row.uri} />
      <p class="help">A group is a rack or a zone. The copies of a document are kept in different groups, so that one may be lost.</p>
      {dialog ? <GroupDialog dialog={dialog} division={seen.data} close={close} /> : null}
    </section>
  );
}

export function Servers() {
  const seen = usePoll(look, 1500);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  if (!seen.data) return <Page title="Servers"><Loading of={seen} /></Page>;
  const { pool, rebalance: task } = seen.data;
  const isRunning = pool.rebalanceStatus === 'running';
  const start = async () => {
    try {
      await rebalance(pool);
      note('The rebalance has begun.');
    } catch (error) {
      if (canBeForced(error)) setDialog({ what: 'force', refused: error });
      else note(error.message, true);
    }
    seen.refresh();
  };
  const stop = async () => { await attempt(() => post('/controller/stopRebalance'), 'The rebalance stops. What was moved stays moved.'); seen.refresh(); };
  return (
    <Page
      title="Servers"
      actions={(
        <>
          <button type="button" onClick={() => setDialog({ what: 'add' })}>Add a server</button>
          <button type="button" class={pool.balanced ? '' : 'primary'} disabled={isRunning} onClick={start}>Rebalance</button>
        </>
      )}
    >
      <Trouble error={seen.error} />
      <div class="cards">
        <Progress task={task} stop={stop} />
        {!pool.balanced && !isRunning ? <p class="card">Data is not where it should be yet. <b>Rebalance</b> moves it while clients go on.</p> : null}
        <section class="card" aria-label="Servers"><Table caption="Servers" columns={columns((what, node) => setDialog({ what, node }), new Set(pool.nodes.map((node) => node.serverGroup)).size > 1)} rows={pool.nodes} keyOf={(row) => row.nodeUUID} /></section>
        <Groups />
      </div>
      {dialog?.what === 'add' ? <Add close={close} /> : null}
      {dialog?.what === 'failover' ? <FailOver node={dialog.node} close={close} /> : null}
      {dialog?.what === 'recover' ? <Recover node={dialog.node} close={close} /> : null}
      {dialog?.what === 'force' ? <Force pool={pool} refused={dialog.refused} close={close} /> : null}
      {dialog?.what === 'remove' ? <Remove node={dialog.node} pool={pool} close={close} /> : null}
    </Page>
  );
}
