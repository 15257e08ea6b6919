// What has happened to the cluster, as the node that is asked has seen it.
import { moment } from './format.js';
import { Badge, Loading, Page, Table, Trouble } from './parts.jsx';
import { useAsk } from './poll.js';

const columns = [
  { title: 'When', value: (row) => -row.tstamp, show: (row) => <time class="even" dateTime={row.serverTime}>{moment(row.tstamp)}</time> },
  { title: 'How bad', value: (row) => row.type, show: (row) => <Badge kind={row.type === 'info' ? '' : 'warn'}>{row.type}</Badge> },
  { title: 'What', value: (row) => row.text },
  { title: 'From', value: (row) => row.module },
];

export function Logs() {
  const seen = useAsk('/logs', 5000);
  return (
    <Page title="Logs">
      <section class="card">
        <p class="help">Changes of the cluster since this node was started, 1,000 at most. Warnings of a node’s own are in its log; <code>audit.log</code> in its data directory says who has done what.</p>
        <Trouble error={seen.data && seen.error} />
        {seen.data ? <Table caption="Changes of the cluster" columns={columns} rows={seen.data.list} keyOf={(row) => `${row.tstamp} ${row.text}`} empty="Nothing has changed since this node was started." /> : <Loading of={seen} />}
      </section>
    </Page>
  );
}
