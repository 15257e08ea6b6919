// Scopes and collections of a bucket: making and dropping.
import { useState } from 'preact/hooks';
import { ask, drop, part, post } from './api.js';
import { Confirm, Dialog, Field, Form, Loading, Page, Table, Trouble, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { go, to } from './route.js';

const place = (bucket) => `/pools/default/buckets/${part(bucket)}/scopes`;

function life(seconds) {
  if (seconds < 0) return 'for ever, whatever the bucket says';
  return seconds ? `${seconds} s at most` : 'as the bucket says';
}

export function Collections({ path: [bucket] }) {
  const buckets = useAsk('/pools/default/buckets?skipMap=true');
  const chosen = bucket ?? buckets.data?.[0]?.name;
  const seen = usePoll(() => (chosen ? ask(place(chosen)) : Promise.resolve({ scopes: [] })), 10_000, [chosen]);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  if (!buckets.data) return <Page title="Collections"><Loading of={buckets} /></Page>;
  if (!chosen) return <Page title="Collections"><p class="quiet">There is no bucket yet. <a href={to('buckets')}>Make one</a></p></Page>;
  const scopes = seen.data?.scopes ?? [];
  const rows = scopes.flatMap((scope) => (scope.collections.length ? scope.collections : [{ name: '', uid: '' }]).map((collection) => ({ scope: scope.name, ...collection })));
  const ends = (row) => (
    <span class="even">
      {row.name && row.name !== '_default' ? <button type="button" class="small" onClick={() => setDialog({ what: 'collection', row })}>Drop collection<span class="hidden"> {row.name}</span></button> : null}{' '}
      {row.scope === '_default' ? null : <button type="button" class="small" onClick={() => setDialog({ what: 'scope', row })}>Drop scope<span class="hidden"> {row.scope}</span></button>}
    </span>
  );
  const columns = [
    { title: 'Scope', value: (row) => row.scope },
    { title: 'Collection', value: (row) => row.name, show: (row) => (row.name ? <a href={to('documents', chosen, row.scope, row.name)}>{row.name}</a> : <span class="quiet">none yet</span>) },
    { title: 'Documents live', value: (row) => row.maxTTL ?? 0, show: (row) => (row.name ? life(row.maxTTL ?? 0) : '') },
    { title: 'What can be done', show: ends },
  ];
  const gone = dialog?.what === 'scope' ? dialog.row.scope : dialog?.row?.name;
  return (
    <Page
      title="Collections"
      actions={(
        <>
          <button type="button" onClick={() => setDialog({ what: 'new scope' })}>New scope</button>
          <button type="button" class="primary" onClick={() => setDialog({ what: 'new collection' })}>New collection</button>
        </>
      )}
    >
      <div class="bar">
        <Field label="Bucket" value={chosen} onChange={(event) => go('collections', event.currentTarget.value)}>
          {buckets.data.map(({ name }) => <option key={name} value={name} selected={name === chosen}>{name}</option>)}
        </Field>
      </div>
      <section class="card">
        <Trouble error={seen.error} />
        {seen.data ? <Table caption="Collections" columns={columns} rows={rows} keyOf={(row) => `${row.scope} ${row.name}`} /> : seen.error ? null : <Loading of={seen} />}
      </section>
      {dialog?.what === 'new scope' ? (
        <Dialog title="New scope" close={close}>
          <Form action="Make it" cancel={close} send={async ({ name }) => { await post(place(chosen), { name }); note(`The scope ${name} is there.`); close(); }}>
            <Field label="Name" name="name" required maxLength={251} autofocus spellcheck={false} />
          </Form>
        </Dialog>
      ) : null}
      {dialog?.what === 'new collection' ? (
        <Dialog title="New collection" close={close}>
          <Form action="Make it" cancel={close} send={async ({ scope, name, maxTTL }) => { await post(`${place(chosen)}/${part(scope)}/collections`, { name, maxTTL }); note(`The collection ${name} is there.`); close(); }}>
            <Field label="Scope" name="scope">{scopes.map(({ name }) => <option key={name} value={name}>{name}</option>)}</Field>
            <Field label="Name" name="name" required maxLength={251} autofocus spellcheck={false} />
            <Field label="Longest life of a document, in seconds" name="maxTTL" type="number" min="-1" defaultValue="0" help="0: as the bucket says. -1: for ever." />
          </Form>
        </Dialog>
      ) : null}
      {dialog?.row ? (
        <Confirm title={`Drop ${gone}`} name={gone} action={`Drop the ${dialog.what}`} close={close} run={async () => { await drop(dialog.what === 'scope' ? `${place(chosen)}/${part(gone)}` : `${place(chosen)}/${part(dialog.row.scope)}/collections/${part(gone)}`); note(`${gone} is dropped.`); }}>
          <p>All documents in it are deleted. They cannot be brought back.</p>
        </Confirm>
      ) : null}
    </Page>
  );
}
