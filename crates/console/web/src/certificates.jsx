// Certificates: what each node shows to clients and when that ends, whom the cluster trusts, and how clients log in by certificate.
import { useState } from 'preact/hooks';
import { ask, drop, post } from './api.js';
import { duration } from './format.js';
import { Badge, Check, Confirm, Dialog, Field, Form, Loading, Page, Table, Trouble, attempt, note } from './parts.jsx';
import { usePoll } from './poll.js';

const DAY = 86_400_000;
const YEAR = 365 * DAY;
/** From here on an alert fires. */
const SOON = 30 * DAY;

const look = async () => {
  const [nodes, authorities, login] = await Promise.all([
    ask('/pools/default/certificates'), ask('/pools/default/trustedCAs'), ask('/settings/clientCertAuth'),
  ]);
  return { nodes, authorities, login };
};

/** When a certificate ends, and how much that matters. */
function Ends({ at }) {
  const left = Date.parse(at) - Date.now();
  if (!Number.isFinite(left)) return <span class="quiet">not known</span>;
  const day = <time class="even" dateTime={at}>{at.split('T')[0]}</time>;
  if (left < 0) return <>{day} <Badge kind="bad">over</Badge></>;
  if (left < SOON) return <>{day} <Badge kind="warn">in {duration(left / 1000)}</Badge></>;
  return left < 3 * YEAR ? <>{day} <span class="quiet">in {duration(left / 1000)}</span></> : day;
}

const made = (row) => (row.type === 'generated' ? 'made by the node' : 'brought by an operator');

const ofNodes = [
  { title: 'Ends', value: (row) => row.expires, show: (row) => <Ends at={row.expires} /> },
  { title: 'Node', value: (row) => row.node },
  { title: 'Whose', value: made },
  { title: 'Name in it', value: (row) => row.subject, show: (row) => <code>{row.subject}</code> },
];

function save(authority) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([authority.pem], { type: 'application/x-pem-file' }));
  link.download = `ca-${authority.id}.pem`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function Authorities({ rows, refuse }) {
  const columns = [
    { title: 'Ends', value: (row) => row.notAfter, show: (row) => <Ends at={row.notAfter} /> },
    { title: 'Name in it', value: (row) => row.subject, show: (row) => <code>{row.subject}</code> },
    { title: 'Whose', value: made },
    { title: 'Vouches for', value: (row) => (row.nodes ?? []).join(', ') },
    {
      title: 'What can be done',
      show: (row) => (
        <span class="even">
          <button type="button" class="small" onClick={() => save(row)}>Save as a file<span class="hidden"> {row.subject}</span></button>{' '}
          {row.type === 'uploaded' ? <button type="button" class="small" onClick={() => refuse(row)}>Trust no more<span class="hidden"> {row.subject}</span></button> : null}
        </span>
      ),
    },
  ];
  return <Table caption="Authorities" columns={columns} rows={rows} keyOf={(row) => `${row.type} ${row.id}`} />;
}

/** It keeps what is typed. Settings that have changed since need a new one: saving would bring the old ones back. */
function ByCertificate({ login, done }) {
  const [prefixes, setPrefixes] = useState(login.prefixes ?? []);
  const set = (index, change) => setPrefixes(prefixes.map((one, at) => (at === index ? { ...one, ...change } : one)));
  const send = async ({ state }) => {
    await ask('/settings/clientCertAuth', { method: 'POST', text: JSON.stringify({ state, prefixes }) });
    note('Saved.');
    done();
  };
  return (
    <Form action="Save" isQuiet send={send}>
      <Field label="Certificates of clients" name="state">
        {[['disable', 'are not looked at'], ['enable', 'log clients in, beside passwords'], ['mandatory', 'are asked of every client']].map(([value, text]) => <option key={value} value={value} selected={value === login.state}>{text}</option>)}
      </Field>
      {prefixes.map((one, index) => (
        <fieldset key={index}>
          <legend>Where the user’s name stands, place {index + 1}</legend>
          <Field label="Field" value={one.path} onChange={(event) => set(index, { path: event.currentTarget.value })}>
            {['subject.cn', 'san.uri', 'san.dnsname', 'san.email'].map((path) => <option key={path} value={path} selected={path === one.path}>{path}</option>)}
          </Field>
          <Field label="Behind this text" value={one.prefix} spellcheck={false} onInput={(event) => set(index, { prefix: event.currentTarget.value })} />
          <Field label="Up to one of these characters" value={one.delimiter} spellcheck={false} onInput={(event) => set(index, { delimiter: event.currentTarget.value })} />
          <button type="button" class="small" onClick={() => setPrefixes(prefixes.filter((_, at) => at !== index))}>Remove place {index + 1}</button>
        </fieldset>
      ))}
      <button type="button" class="small" onClick={() => setPrefixes([...prefixes, { path: 'subject.cn', prefix: '', delimiter: '' }])}>Add a place</button>
    </Form>
  );
}

const Anew = ({ close }) => (
  <Dialog title="Make certificates anew" close={close}>
    <Form
      action="Make them"
      isDangerous
      cancel={close}
      send={async ({ keep }) => {
        await post(`/controller/regenerateCertificate?dropUploadedCertificates=${!keep}`);
        note('The nodes have new certificates.');
        close();
      }}
    >
      <p>Every node makes a certificate of its own. Clients that trust the old ones have to be given the new ones.</p>
      <Check label="Keep certificates that an operator has brought" name="keep" defaultChecked />
    </Form>
  </Dialog>
);

export function Certificates() {
  const seen = usePoll(look, 0);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  if (!seen.data) return <Page title="Certificates"><Loading of={seen} /></Page>;
  const { nodes, authorities, login } = seen.data;
  const load = async () => { await attempt(() => post('/node/controller/loadTrustedCAs'), 'The authorities in the inbox are trusted.'); seen.refresh(); };
  const reload = async () => { await attempt(() => post('/node/controller/reloadCertificate'), 'This node shows the certificate of its inbox.'); seen.refresh(); };
  return (
    <Page title="Certificates" actions={<button type="button" onClick={() => setDialog({ what: 'anew' })}>Make them anew</button>}>
      <Trouble error={seen.error} />
      <div class="cards">
        <section class="card" aria-labelledby="nodes">
          <h2 id="nodes">Certificates of the nodes</h2>
          <Table caption="Certificates of the nodes" columns={ofNodes} rows={nodes} keyOf={(row) => row.node} empty="No node serves TLS." />
          <p class="help">
            An alert fires 30 days before one ends. To bring another one: put <code>chain.pem</code> and <code>pkey.key</code> into <code>inbox</code> in
            the node’s data directory, open the console of that node, and press the button here. Connections go on; new ones get the new certificate.
          </p>
          <button type="button" onClick={reload}>Show this node’s new certificate</button>
        </section>
        <section class="card" aria-labelledby="authorities">
          <h2 id="authorities">Authorities that the cluster trusts</h2>
          <Authorities rows={authorities} refuse={(row) => setDialog({ what: 'refuse', row })} />
          <p class="help">Clients need these files to trust the nodes. To add one: put it into <code>inbox/CA</code> in this node’s data directory, then press the button.</p>
          <button type="button" onClick={load}>Trust those in this node’s inbox</button>
        </section>
        <section class="card" aria-labelledby="login">
          <h2 id="login">Log-in by certificate</h2>
          <ByCertificate key={JSON.stringify(login)} login={login} done={seen.refresh} />
        </section>
      </div>
      {dialog?.what === 'anew' ? <Anew close={close} /> : null}
      {dialog?.what === 'refuse' ? (
        <Confirm title="Trust an authority no more" name={String(dialog.row.id)} action="Trust it no more" close={close} run={async () => { await drop(`/pools/default/trustedCAs/${dialog.row.id}`); note('The cluster trusts it no more.'); }}>
          <p>The authority is <code>{dialog.row.subject}</code>, number {dialog.row.id}. Clients whose certificates it has signed cannot log in by them any more.</p>
        </Confirm>
      ) : null}
    </Page>
  );
}
