// Views: design documents of a bucket, and one view: its functions, a trial of them, a query, and which documents it leaves out.
//
// Views are changed in development (`dev_…`) and published under the name without that. What is published is changed by no other way
// here, so that nobody who queries it meets a function that was tried on nothing.
import { useEffect, useState } from 'preact/hooks';
import { ask, drop, part } from './api.js';
import { bytes, count, plural } from './format.js';
import { Badge, Check, Confirm, Dialog, Field, Form, Loading, Page, Table, Trouble, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { go, to } from './route.js';

const DEVELOPMENT = 'dev_';
const NEW = 'function (doc, meta) {\n  emit(meta.id, null);\n}';
const BUILT_IN = ['_count', '_sum', '_stats'];
/** Documents that a trial takes. */
const SAMPLE = 50;
// No key that begins with a prefix lies behind this one.
const END = '\u{10ffff}';
/** Rows that are shown of a trial, and of a query that says nothing. */
const TRIED = 10;
const ROWS = 25;

const isDevelopment = (name) => name.startsWith(DEVELOPMENT);
const place = (bucket, design) => `/couchBase/${part(bucket)}/_design/${part(design)}`;

/** The design documents of a bucket: name, and what they define. */
async function designs(bucket) {
  const { rows } = await ask(`/pools/default/buckets/${part(bucket)}/ddocs`);
  return rows.map(({ doc }) => ({ name: doc.meta.id.replace(/^_design\//, ''), document: doc.json }));
}

const store = (bucket, design, document) => ask(place(bucket, design), { method: 'PUT', text: JSON.stringify(document) });

/** What a document says with one view made, replaced or (without `view`) taken out. The rest stays. */
function changed(document, name, view) {
  const views = { ...document?.views };
  delete views[name];
  if (view) {
    const { reduce: _, ...others } = document?.views?.[name] ?? {};
    views[name] = { ...others, ...view };
  }
  return { ...document, views };
}

/** Takes a view out of its document. Somebody else may have changed another view of that since the page was loaded. */
async function removeView(bucket, design, name) {
  const now = (await designs(bucket)).find((one) => one.name === design)?.document;
  if (now) await store(bucket, design, changed(now, name));
}

function Pick({ bucket, buckets }) {
  return (
    <div class="bar">
      <Field label="Bucket" value={bucket} onChange={(event) => go('views', event.currentTarget.value)}>
        {buckets.map(({ name }) => <option key={name} value={name} selected={name === bucket}>{name}</option>)}
      </Field>
    </div>
  );
}

function Make({ bucket, close }) {
  const send = async ({ design, view }) => {
    const name = isDevelopment(design) ? design : `${DEVELOPMENT}${design}`;
    const known = (await designs(bucket)).find((one) => one.name === name)?.document;
    if (known?.views?.[view]) throw new Error(`${name} has a view of that name already. Open it instead.`);
    await store(bucket, name, changed(known, view, { map: NEW }));
    close();
    go('views', bucket, name, view);
  };
  return (
    <Dialog title="New view" close={close}>
      <Form action="Make it" cancel={close} send={send}>
        <Field label="Design document" name="design" required maxLength={200} autofocus spellcheck={false} autocomplete="off" help="Views of one document share an index. A new view is in development until you publish its document." />
        <Field label="View" name="view" required maxLength={200} spellcheck={false} autocomplete="off" />
      </Form>
    </Dialog>
  );
}

async function publish(bucket, design, document, refresh) {
  const name = design.slice(DEVELOPMENT.length);
  try {
    await store(bucket, name, document);
    note(`${design} is published as ${name}.`);
    refresh();
  } catch (error) {
    note(error.message, true);
  }
}

async function develop(bucket, design, document, view) {
  const name = `${DEVELOPMENT}${design}`;
  try {
    const known = (await designs(bucket)).find((one) => one.name === name);
    if (!known) await store(bucket, name, document);
    else if (!known.document.views?.[view]) await store(bucket, name, changed(known.document, view, document.views[view]));
    go('views', bucket, name, view);
  } catch (error) {
    note(error.message, true);
  }
}

function List({ bucket, buckets }) {
  const seen = usePoll(() => designs(bucket), 5000, [bucket]);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  const rows = (seen.data ?? []).flatMap(({ name, document }) => {
    const views = Object.keys(document.views ?? {});
    return (views.length ? views : [undefined]).map((view) => ({ name, document, view }));
  });
  const isFirst = (row) => rows.find((one) => one.name === row.name) === row;
  const acts = (row) => (isFirst(row) ? (
    <span class="even">
      {isDevelopment(row.name) ? <button type="button" class="small" onClick={() => publish(bucket, row.name, row.document, seen.refresh)}>Publish<span class="hidden"> {row.name}</span></button> : null}{' '}
      <button type="button" class="small" onClick={() => setDialog({ gone: row.name })}>Delete<span class="hidden"> {row.name}</span></button>
    </span>
  ) : null);
  const columns = [
    { title: 'Design document', value: (row) => row.name, show: (row) => <b>{row.name}</b> },
    { title: 'State', value: (row) => (isDevelopment(row.name) ? 'in development' : 'published'), show: (row) => (isDevelopment(row.name) ? <Badge>in development</Badge> : <Badge kind="good">published</Badge>) },
    { title: 'View', value: (row) => row.view ?? '', show: (row) => (row.view === undefined ? <span class="quiet">none</span> : <a href={to('views', bucket, row.name, row.view)}>{row.view}</a>) },
    { title: 'Reduction', value: (row) => row.document.views?.[row.view]?.reduce ?? '', show: (row) => { const { reduce } = row.document.views?.[row.view] ?? {}; return reduce && !BUILT_IN.includes(reduce) ? 'a function' : reduce ?? ''; } },
    { title: 'What can be done', show: acts },
  ];
  return (
    <Page title="Views" actions={<button type="button" class="primary" onClick={() => setDialog('new')}>New view</button>}>
      <Pick bucket={bucket} buckets={buckets} />
      <section class="card" aria-label="Design documents">
        <Trouble error={seen.error} />
        {seen.data ? <Table caption="Views" columns={columns} rows={rows} keyOf={(row) => `${row.name} ${row.view}`} empty="This bucket has no view yet. A view is a list of what a function of yours finds in each document, in order of a key." /> : seen.error ? null : <Loading of={seen} />}
      </section>
      {dialog === 'new' ? <Make bucket={bucket} close={close} /> : null}
      {dialog?.gone ? (
        <Confirm title={`Delete ${dialog.gone}`} name={dialog.gone} action="Delete" close={close} run={async () => { await drop(place(bucket, dialog.gone)); note(`${dialog.gone} is deleted.`); }}>
          <p>Its views can be queried no longer, and their index is removed. No document of the bucket changes.</p>
        </Confirm>
      ) : null}
    </Page>
  );
}

const Source = ({ id, label, ...input }) => (
  <div class="field">
    <label for={id}>{label}</label>
    <textarea id={id} spellcheck={false} {...input} />
  </div>
);

/** What a trial has found. */
function Tried({ told }) {
  const columns = [
    { title: 'Key', isKey: true, value: (row) => row.key, show: (row) => <code>{row.key}</code> },
    { title: 'Value', value: (row) => row.value, show: (row) => <code>{row.value}</code> },
    { title: 'Document', value: (row) => row.id },
  ];
  const texts = [
    { title: 'Text', value: (row) => row.text, show: (row) => <code>{row.text}</code> },
    { title: 'Documents', value: (row) => row.count, isNumber: true },
    { title: 'The first of them', value: (row) => row.id },
  ];
  const rows = told.rows.slice(0, TRIED).map((row, number) => ({ ...row, number }));
  return (
    <>
      <p class="answer">
        {plural(told.documents, 'document')} tried: {plural(told.total_rows, 'row')}{told.failed ? `, and ${plural(told.failed, 'document')} on which the function failed` : ''}.
        {told.stopped ? ' The trial has ended before all were tried: it takes too long, or has too many rows.' : ''}
      </p>
      {told.reduced?.error ? <p class="trouble" role="alert">The reduction failed: {told.reduced.error}</p> : null}
      {told.reduced && !told.reduced.error ? <p>{plural(told.reduced.rows, 'row')} reduced to <code>{told.reduced.value ?? 'nothing'}</code>.</p> : null}
      <Table caption="Rows of the trial" columns={columns} rows={rows} keyOf={(row) => row.number} empty="The function has emitted no row." />
      {told.total_rows > TRIED ? <p class="help">The first {TRIED} rows are shown.</p> : null}
      {told.errors.length ? <><h3>Errors</h3><Table caption="Errors of the trial" columns={texts} rows={told.errors} keyOf={(row) => row.text} /></> : null}
      {told.logs.length ? <><h3>Logged</h3><Table caption="What the function has logged" columns={texts} rows={told.logs} keyOf={(row) => row.text} /></> : null}
    </>
  );
}

/** The functions of a view, to try and to store. `view` is what is stored. */
function Functions({ bucket, design, name, document, stored }) {
  const view = document.views[name];
  const [map, setMap] = useState(view.map);
  const [kind, setKind] = useState(view.reduce === undefined || BUILT_IN.includes(view.reduce) ? view.reduce ?? '' : 'function');
  const [reduce, setReduce] = useState(kind === 'function' ? view.reduce : 'function (keys, values, rereduce) {\n  return sum(values);\n}');
  const [begins, setBegins] = useState('');
  const [told, setTold] = useState();
  const [error, setError] = useState();
  const [isBusy, setBusy] = useState(false);
  const isOpen = isDevelopment(design);
  const functions = { map, reduce: kind === 'function' ? reduce : kind || undefined };
  const isChanged = functions.map !== view.map || functions.reduce !== view.reduce;
  const act = (what) => async () => {
    setBusy(true);
    setError(undefined);
    try {
      await what();
    } catch (trouble) {
      setError(trouble);
    }
    setBusy(false);
  };
  const attemptIt = act(async () => {
    const range = new URLSearchParams({ include_docs: 'true', limit: SAMPLE, startkey: JSON.stringify(begins), endkey: JSON.stringify(begins + END) });
    const sample = await ask(`/pools/default/buckets/${part(bucket)}/docs?${range}`);
    const documents = sample.rows.map((row) => row.doc).filter(Boolean);
    if (!documents.length) throw new Error('The default collection has no document of such a key to try the function on.');
    setTold(await ask(`/couchBase/${part(bucket)}/_try`, { method: 'POST', text: JSON.stringify({ ...functions, documents }) }));
  });
  const save = act(async () => {
    // Somebody else may have changed another view of the document meanwhile.
    const now = (await designs(bucket)).find((one) => one.name === design)?.document;
    await store(bucket, design, changed(now, name, functions));
    note(`${name} is saved.`);
    stored();
  });
  return (
    <section class="card" aria-labelledby="functions">
      <h2 id="functions">Functions</h2>
      <Source id="map" label="Map: what is emitted of each document" rows={Math.min(18, Math.max(6, map.split('\n').length + 1))} value={map} readOnly={!isOpen} onInput={(event) => setMap(event.currentTarget.value)} />
      <Field label="Reduction" value={kind} disabled={!isOpen} onChange={(event) => setKind(event.currentTarget.value)} help="What rows are summed up to, where a query asks for that.">
        {[['', 'None'], ...BUILT_IN.map((one) => [one, one]), ['function', 'A function']].map(([value, title]) => <option key={value} value={value} selected={value === kind}>{title}</option>)}
      </Field>
      {kind === 'function' ? <Source id="reduce" label="Reduce function" rows={6} value={reduce} readOnly={!isOpen} onInput={(event) => setReduce(event.currentTarget.value)} /> : null}
      <div class="bar">
        <Field label="Try it on documents whose keys begin with" value={begins} spellcheck={false} autocomplete="off" onInput={(event) => setBegins(event.currentTarget.value)} />
      </div>
      <Trouble error={error} />
      <div class="buttons">
        <button type="button" disabled={isBusy} onClick={attemptIt}>Try on {SAMPLE} documents</button>
        {isOpen ? <button type="button" class="primary" disabled={isBusy || !isChanged} onClick={save}>Save</button> : <button type="button" disabled={isBusy} onClick={() => develop(bucket, design, document, name)}>Change it in development</button>}
      </div>
      <p class="help">A trial stores nothing. It takes the first {SAMPLE} such documents of the default collection, and runs in the same confined process as an index.</p>
      {told ? <Tried told={told} /> : null}
    </section>
  );
}

/** Parameters of a query by the fields of its form. */
function parameters({ key, startkey, endkey, limit, level, stale, all, down, rows }, hasReduction) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ key, startkey, endkey })) {
    if (!value.trim()) continue;
    try {
      JSON.parse(value);
    } catch {
      throw new Error(`A key is JSON: "text" has quotation marks, and a list has brackets. This is neither: ${value}`);
    }
    query.set(name, value.trim());
  }
  query.set('limit', limit || ROWS);
  query.set('stale', stale);
  if (down) query.set('descending', 'true');
  if (all) query.set('full_set', 'true');
  if (hasReduction && rows) query.set('reduce', 'false');
  if (hasReduction && !rows && level) query.set(level === 'all' ? 'group' : 'group_level', level === 'all' ? 'true' : level);
  return query;
}

function Query({ bucket, design, name, hasReduction }) {
  const [told, setTold] = useState();
  const send = async (fields) => {
    const query = parameters(fields, hasReduction);
    const began = performance.now();
    const path = `${place(bucket, design)}/_view/${part(name)}?${query}`;
    const answer = await ask(path);
    setTold({ ...answer, path: path.replace(/^\/couchBase/, ''), took: performance.now() - began });
  };
  const columns = [
    { title: 'Key', isKey: true, value: (row) => JSON.stringify(row.key), show: (row) => <code>{JSON.stringify(row.key)}</code> },
    { title: 'Value', value: (row) => JSON.stringify(row.value), show: (row) => <code>{JSON.stringify(row.value)}</code> },
    ...(told?.rows.some((row) => row.id !== undefined) ? [{ title: 'Document', value: (row) => row.id }] : []),
  ];
  return (
    <section class="card" aria-labelledby="query">
      <h2 id="query">Query</h2>
      <Form action="Query" send={send}>
        <div class="bar">
          <Field label="Key" name="key" spellcheck={false} autocomplete="off" placeholder='"text", 1, ["a", 2]' />
          <Field label="From key" name="startkey" spellcheck={false} autocomplete="off" />
          <Field label="To key" name="endkey" spellcheck={false} autocomplete="off" />
          <Field label="Rows at most" name="limit" type="number" min="1" max="1000" defaultValue={ROWS} />
          <Field label="How new" name="stale" defaultValue="false">
            <option value="false">waits for all writes</option>
            <option value="ok">as the index is</option>
          </Field>
          {hasReduction ? (
            <Field label="Reduced by" name="level">
              <option value="">nothing: one result</option>
              <option value="all">each key</option>
              {[1, 2, 3].map((level) => <option key={level} value={level}>the first {level} of a list</option>)}
            </Field>
          ) : null}
        </div>
        {hasReduction ? <Check label="Rows instead of their reduction" name="rows" /> : null}
        <Check label="Greatest key first" name="down" />
        {isDevelopment(design) ? <Check label="All documents. Without this a view in development covers some vBuckets only, so that it is built soon." name="all" /> : null}
      </Form>
      {told ? (
        <>
          <p class="answer" role="status">{told.total_rows === undefined ? `${plural(told.rows.length, 'result')}` : `${count(told.rows.length)} of ${plural(told.total_rows, 'row')}`} in {Math.round(told.took)} ms</p>
          {(told.errors ?? []).map((error) => <p key={error.from} class="trouble" role="alert">Not whole: {error.reason} ({error.from})</p>)}
          <Table key={told.path} caption="Rows" columns={columns} rows={told.rows.map((row, number) => ({ ...row, number }))} keyOf={(row) => row.number} empty="No row has such a key." />
          <p class="help">A client asks a port of views (8092) for <code>{told.path}</code></p>
        </>
      ) : null}
    </section>
  );
}

/** How far the index is, and what it leaves out. */
function Index({ bucket, design, name }) {
  const seen = usePoll(() => Promise.all([ask(`${place(bucket, design)}/_info`), ask(`${place(bucket, design)}/_errors`)]), 3000, [bucket, design]);
  if (!seen.data) return <section class="card"><Loading of={seen} /></section>;
  const [info, errors] = seen.data;
  const index = info.view_index;
  const wrong = errors.views[name] ?? { total: 0, last: [] };
  const columns = [
    { title: 'Document', value: (row) => row.id, show: (row) => <a href={to('documents', bucket, '_default', '_default')}>{row.id}</a> },
    { title: 'Why', value: (row) => row.reason },
  ];
  return (
    <section class="card" aria-labelledby="index">
      <h2 id="index">Index on this node</h2>
      {index ? (
        <dl class="facts">
          {[
            ['Rows', count(index.views[name]?.rows ?? 0)],
            ['On disk', bytes(index.disk_size)],
            ['Changes still to index', count(index.total_seqs_diff)],
            ['State', index.error ?? (index.disk_has_no_room ? 'the disk has no room' : index.initial_build && index.total_seqs_diff > 0 ? 'is being built' : 'follows changes')],
          ].map(([title, value]) => <div key={title}><dt>{title}</dt><dd>{value}</dd></div>)}
        </dl>
      ) : <p class="quiet">This node keeps no index of it yet. A view in development is indexed when somebody queries it.</p>}
      <h3>Documents left out</h3>
      {wrong.total ? <p class="trouble">The function has failed on {plural(wrong.total, 'document')} since this node opened the index. The last of them:</p> : null}
      <Table caption="Documents left out" columns={columns} rows={wrong.last} keyOf={(row) => row.id} empty="None: the function has not failed." />
    </section>
  );
}

function One({ bucket, design, name }) {
  const seen = usePoll(() => designs(bucket), 0, [bucket, design]);
  const found = seen.data?.find((one) => one.name === design)?.document;
  const view = found?.views?.[name];
  const [isDeleting, setDeleting] = useState(false);
  useEffect(() => { setDeleting(false); }, [design, name]);
  if (!seen.data) return <Page title={name}><Loading of={seen} /></Page>;
  if (!view) return <Page title={name}><p class="trouble">There is no view {name} in {design}. <a href={to('views', bucket)}>All views</a></p></Page>;
  return (
    <Page
      title={name}
      actions={(
        <>
          {isDevelopment(design) ? <button type="button" onClick={() => publish(bucket, design, found, seen.refresh)}>Publish {design}</button> : null}
          {isDevelopment(design) ? <button type="button" onClick={() => setDeleting(true)}>Delete</button> : null}
        </>
      )}
    >
      <p><a href={to('views', bucket)}>All views of {bucket}</a> · {design} {isDevelopment(design) ? <Badge>in development</Badge> : <Badge kind="good">published</Badge>}</p>
      <Trouble error={seen.error} />
      <div class="cards">
        <Functions key={`${design} ${name} ${view.map} ${view.reduce}`} bucket={bucket} design={design} name={name} document={found} stored={seen.refresh} />
        <Query bucket={bucket} design={design} name={name} hasReduction={view.reduce !== undefined} />
        <Index bucket={bucket} design={design} name={name} />
      </div>
      {isDeleting ? (
        <Confirm title={`Delete ${name}`} name={name} action="Delete" close={() => setDeleting(false)} run={async () => { await removeView(bucket, design, name); note(`${name} is deleted.`); go('views', bucket); }}>
          <p>The view is taken out of {design}. What was published stays.</p>
        </Confirm>
      ) : null}
    </Page>
  );
}

export function Views({ path: [bucket, design, name] }) {
  const seen = useAsk('/pools/default/buckets?skipMap=true');
  if (!seen.data) return <Page title="Views"><Loading of={seen} /></Page>;
  const buckets = seen.data.filter((one) => one.bucketType === 'membase');
  const chosen = bucket ?? buckets[0]?.name;
  if (!chosen) return <Page title="Views"><p class="quiet">Views need a bucket of the type Couchbase, and there is none yet. <a href={to('buckets')}>Make one</a></p></Page>;
  return name === undefined ? <List bucket={chosen} buckets={buckets} /> : <One key={`${bucket} ${design} ${name}`} bucket={bucket} design={design} name={name} />;
}
