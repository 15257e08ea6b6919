// Documents: browsed by the beginning of their keys, opened, changed against the version that was read, and deleted.
import { useEffect, useState } from 'preact/hooks';
import { ask, drop, part, post } from './api.js';
import { moment } from './format.js';
import { Confirm, Dialog, Field, Form, Loading, Page, Table, Trouble, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { at, put } from './path.js';
import { go, to } from './route.js';

const PER_PAGE = 50;
// No key that begins with a prefix lies behind this one.
const END = '\u{10ffff}';
const place = (bucket, scope, collection) => `/pools/default/buckets/${part(bucket)}/scopes/${part(scope)}/collections/${part(collection)}/docs`;

/** Why a text is no JSON, with its line; nothing where it is. */
function fault(text) {
  try {
    JSON.parse(text);
    return '';
  } catch (error) {
    const at = /position (\d+)/.exec(error.message)?.[1];
    const line = at === undefined ? '' : ` (line ${text.slice(0, at).split('\n').length})`;
    return `This is not JSON${line}: ${error.message}`;
  }
}

/** Whether a browser keeps a document as it is by reading it, but for white space: digits, and members of one name. */
function keeps(text) {
  const packed = text.replace(/("(?:\\.|[^"\\])*")|\s+/g, (_, string = '') => string);
  return JSON.stringify(JSON.parse(text)) === packed;
}

/** JSON with one member a line, unless anything but white space in it would change by being read: digits, or members of one name. */
function laidOut(text) {
  try {
    return keeps(text) ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    return text;
  }
}

/** The path of a document. Browsers take these two keys for steps in a path, and would ask for something else. */
function pathOf(base, key) {
  if (key === '.' || key === '..') throw new Error('A browser cannot ask for a document of this key. Use a client.');
  return `${base}/${part(key)}`;
}

/** One part of the document, by its path, to be read and changed beside the whole. */
function Part({ text, setText }) {
  const [path, setPath] = useState('');
  const [draft, setDraft] = useState();
  let found;
  let trouble = '';
  try {
    // A browser would change digits and doubled names elsewhere in the document by reading it.
    if (path && !keeps(text)) throw new Error('The document has to be changed as a whole: a browser would change its numbers or names by reading it.');
    found = path ? at(JSON.parse(text), path) : undefined;
    if (path && found === undefined) trouble = 'There is nothing at this path yet.';
  } catch (error) {
    trouble = error.message;
  }
  const shown = draft ?? (found === undefined ? '' : JSON.stringify(found, null, 2));
  const take = () => {
    try {
      if (!keeps(shown)) throw new Error('A browser would change the numbers or names of this value by reading it. Change the document as a whole.');
      setText(JSON.stringify(put(JSON.parse(text), path, JSON.parse(shown)), null, 2));
      setDraft(undefined);
    } catch (error) {
      note(error.message, true);
    }
  };
  return (
    <details>
      <summary>A part of it, by its path</summary>
      <Field label="Path" value={path} spellcheck={false} autocomplete="off" error={trouble} help="As tracks[0].title; `a.b` in backticks is one name." onInput={(event) => { setPath(event.currentTarget.value); setDraft(undefined); }} />
      <div class="field">
        <label for="part">Value at the path, as JSON</label>
        <textarea id="part" rows="5" spellcheck={false} value={shown} disabled={!path} onInput={(event) => setDraft(event.currentTarget.value)} />
      </div>
      <button type="button" class="small" disabled={draft === undefined || Boolean(fault(draft))} onClick={take}>Put it into the document</button>
    </details>
  );
}

function Editor({ base, id, close }) {
  const isNew = id === undefined;
  const seen = usePoll(() => (isNew ? Promise.resolve({ json: '{\n  \n}', settee: { cas: '0' } }) : ask(pathOf(base, id))), 0, [base, id]);
  const [text, setText] = useState();
  const [isDeleting, setDeleting] = useState(false);
  const document = seen.data;
  useEffect(() => {
    if (document?.json !== undefined) setText(isNew ? document.json : laidOut(document.json));
  }, [document]);
  const wrong = text === undefined ? '' : fault(text);
  const save = async ({ key }) => {
    const form = { value: text, cas: document.settee.cas, flags: document.meta?.flags };
    const target = isNew ? key : id;
    try {
      await post(pathOf(base, target), form);
    } catch (error) {
      throw error.status === 409 && isNew ? new Error('There is a document of that key already. Open it instead.') : error;
    }
    note(`${target} is saved.`);
    close();
  };
  if (isDeleting) {
    return (
      <Confirm title="Delete the document" name={id} action="Delete" close={() => setDeleting(false)} run={async () => { await drop(`${pathOf(base, id)}?cas=${document.settee.cas}`); note(`${id} is deleted.`); close(); }}>
        <p>The document is deleted, unless somebody has changed it since you opened it.</p>
      </Confirm>
    );
  }
  return (
    <Dialog title={isNew ? 'New document' : id} close={close} isWide>
      {document ? (
        <Form action="Save" send={save} cancel={close} isWaiting={Boolean(wrong) || text === undefined}>
          {isNew ? <Field label="Key" name="key" required maxLength={250} autocomplete="off" spellcheck={false} autofocus /> : (
            <p class="quiet">CAS {document.settee.cas}, revision {document.meta.rev.split('-')[0]}, flags {document.meta.flags}{document.meta.expiration ? `, expires ${moment(document.meta.expiration * 1000)}` : ', never expires'}</p>
          )}
          {document.base64 !== undefined ? <p>The value is not JSON. It has {Math.floor((document.base64.length * 3) / 4)} bytes, in base64:</p> : null}
          {document.base64 !== undefined ? <textarea rows="12" readOnly value={document.base64} aria-label="Value in base64" /> : (
            <div class="field">
              <label for="value">Value, as JSON</label>
              <textarea id="value" rows="20" spellcheck={false} value={text} aria-invalid={wrong ? 'true' : undefined} aria-describedby="fault" onInput={(event) => setText(event.currentTarget.value)} />
              <p id="fault" class="trouble" aria-live="polite">{wrong}</p>
            </div>
          )}
          {document.base64 !== undefined || wrong || text === undefined ? null : <Part text={text} setText={setText} />}
          {isNew ? null : <button type="button" class="small" onClick={() => setDeleting(true)}>Delete this document</button>}
        </Form>
      ) : <Loading of={seen} />}
    </Dialog>
  );
}

function Keys({ bucket, scope, collection }) {
  const base = place(bucket, scope, collection);
  const [prefix, setPrefix] = useState('');
  const [pages, setPages] = useState(['']);
  const [open, setOpen] = useState();
  const from = pages[pages.length - 1] || prefix;
  const query = new URLSearchParams({ limit: PER_PAGE + 1, startkey: JSON.stringify(from), endkey: JSON.stringify(prefix + END) });
  const seen = useAsk(`${base}?${query}`);
  const rows = seen.data?.rows ?? [];
  const close = () => { setOpen(undefined); seen.refresh(); };
  const columns = [{ title: 'Key', isKey: true, value: (row) => row.id, show: (row) => <button type="button" class="plain key" onClick={() => setOpen({ id: row.id })}>{row.id}</button> }];
  const look = async ({ begins }) => { setPages(['']); setPrefix(begins); };
  const openKey = async ({ key }) => { await ask(pathOf(base, key)); setOpen({ id: key }); };
  return (
    <section class="card" aria-label="Keys">
      <div class="bar">
        <Form action="Show" isQuiet send={look}><Field label="Keys that begin with" name="begins" spellcheck={false} autocomplete="off" /></Form>
        <Form action="Open" isQuiet send={openKey}><Field label="Exact key" name="key" required spellcheck={false} autocomplete="off" /></Form>
      </div>
      <Trouble error={seen.error?.status === 501 ? new Error('Keys of an ephemeral bucket cannot be listed. Open a document by its exact key.') : seen.error} />
      {seen.data ? <Table caption="Keys" columns={columns} rows={rows.slice(0, PER_PAGE)} keyOf={(row) => row.id} empty="No key begins so." /> : seen.error ? null : <Loading of={seen} />}
      <div class="buttons">
        <button type="button" disabled={pages.length < 2} onClick={() => setPages(pages.slice(0, -1))}>Previous</button>
        <button type="button" disabled={rows.length <= PER_PAGE} onClick={() => setPages([...pages, rows[PER_PAGE].id])}>Next</button>
        <button type="button" class="primary" onClick={() => setOpen({})}>New document</button>
      </div>
      {open ? <Editor base={base} id={open.id} close={close} /> : null}
    </section>
  );
}

/** Buckets, scopes and collections to choose from. */
function Choice({ label, names, chosen, choose }) {
  return (
    <Field label={label} value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
      {names.map((name) => <option key={name} value={name} selected={name === chosen}>{name}</option>)}
    </Field>
  );
}

export function Documents({ path: [bucket, scope = '_default', collection = '_default'] }) {
  const buckets = useAsk('/pools/default/buckets?skipMap=true');
  const chosen = bucket ?? buckets.data?.[0]?.name;
  const scopes = usePoll(() => (chosen ? ask(`/pools/default/buckets/${part(chosen)}/scopes`) : Promise.resolve({ scopes: [] })), 0, [chosen]);
  if (!buckets.data) return <Page title="Documents"><Loading of={buckets} /></Page>;
  if (!chosen) return <Page title="Documents"><p class="quiet">There is no bucket yet. <a href={to('buckets')}>Make one</a></p></Page>;
  const known = scopes.data?.scopes ?? [];
  const inScope = known.find((one) => one.name === scope)?.collections ?? [];
  return (
    <Page title="Documents">
      <Trouble error={scopes.error} />
      <div class="bar">
        <Choice label="Bucket" names={buckets.data.map((one) => one.name)} chosen={chosen} choose={(name) => go('documents', name)} />
        <Choice label="Scope" names={known.map((one) => one.name)} chosen={scope} choose={(name) => go('documents', chosen, name, known.find((one) => one.name === name)?.collections[0]?.name ?? '_default')} />
        <Choice label="Collection" names={inScope.map((one) => one.name)} chosen={collection} choose={(name) => go('documents', chosen, scope, name)} />
      </div>
      <Keys key={`${chosen} ${scope} ${collection}`} bucket={chosen} scope={scope} collection={collection} />
    </Page>
  );
}
