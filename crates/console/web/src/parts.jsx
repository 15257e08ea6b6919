// What the pages are made of: tables that sort, dialogs, forms, notes.
import { signal } from '@preact/signals';
import { useEffect, useId, useMemo, useRef, useState } from 'preact/hooks';
import { FORCE, canBeForced } from './force.js';

/** Notes at the foot of the page, read out by screen readers. */
const notes = signal([]);
let number = 0;
export function note(text, isBad = false) {
  const id = ++number;
  notes.value = [...notes.value.slice(-3), { id, text, isBad }];
  setTimeout(() => {
    notes.value = notes.value.filter((one) => one.id !== id);
  }, isBad ? 12000 : 5000);
}

export const Notes = () => (
  <div class="notes" role="status" aria-live="polite">
    {notes.value.map(({ id, text, isBad }) => <p key={id} class={isBad ? 'note bad' : 'note'}>{text}</p>)}
  </div>
);

/** Does something and says how it went. Resolves with whether it went well. */
export async function attempt(what, done) {
  try {
    await what();
    if (done) note(done);
    return true;
  } catch (error) {
    note(error.message, true);
    return false;
  }
}

export const Badge = ({ kind = '', children }) => <span class={`badge ${kind}`}>{children}</span>;

/** A text in which code stands between backticks. */
export const Coded = ({ text }) => <>{text.split('`').map((one, index) => (index % 2 ? <code key={index}>{one}</code> : one))}</>;

export const Trouble = ({ error }) => (error ? <p class="trouble" role="alert">{error.message}</p> : null);

export const Loading = ({ of }) => (of.error ? <Trouble error={of.error} /> : <p class="quiet">Loading…</p>);

/** How much of something is used. `mark` is a limit below the whole. Of progress, nothing is too much. */
export function Meter({ value, of, mark, label, isProgress }) {
  const share = of > 0 ? Math.min(100, (value / of) * 100) : 0;
  const isHigh = !isProgress && (mark ? value > mark : share > 85);
  return (
    <svg class={isHigh ? 'meter high' : 'meter'} role="img" aria-label={`${label}: ${Math.round(share)} %`} viewBox="0 0 100 6" preserveAspectRatio="none">
      <rect class="ground" width="100" height="6" rx="1" />
      <rect class="fill" width={share} height="6" rx="1" />
      {mark && of > 0 ? <rect class="mark" x={Math.min(99.2, (mark / of) * 100)} width="0.8" height="6" /> : null}
    </svg>
  );
}

/**
 * A table. A column is `{ title, value, show, isNumber }`: rows are sorted by `value`, and have `show` in their cells. A column
 * without `value` has buttons; one that `isKey` is in order already, as the server orders keys.
 */
export function Table({ caption, columns, rows, keyOf, empty = 'There is nothing here yet.', sort = 0 }) {
  const [by, setBy] = useState({ column: sort, isDown: false });
  const sorted = useMemo(() => {
    const { value, isKey } = columns[by.column] ?? {};
    if (!value) return rows;
    if (isKey) return by.isDown ? [...rows].reverse() : rows;
    const compare = (a, b) => (typeof a === 'number' && typeof b === 'number' ? a - b : String(a ?? '').localeCompare(String(b ?? ''), undefined, { numeric: true }));
    const turned = [...rows].sort((a, b) => compare(value(a), value(b)));
    return by.isDown ? turned.reverse() : turned;
  }, [rows, by, columns]);
  if (!rows.length) return <p class="quiet">{empty}</p>;
  const state = (index) => (index !== by.column ? 'none' : by.isDown ? 'descending' : 'ascending');
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="hidden">{caption}</caption>
        <thead>
          <tr>
            {columns.map(({ title, value, isNumber }, index) => (
              <th key={title} scope="col" class={isNumber ? 'number' : ''} aria-sort={value ? state(index) : undefined}>
                {value ? (
                  <button type="button" class="sort" onClick={() => setBy({ column: index, isDown: by.column === index && !by.isDown })}>
                    {title}<span aria-hidden="true">{index === by.column ? (by.isDown ? ' ↓' : ' ↑') : ''}</span>
                  </button>
                ) : <span class="hidden">{title}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map(({ title, value, show, isNumber }) => (
                <td key={title} class={isNumber ? 'number' : value ? '' : 'actions'}>{show ? show(row) : value(row)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A dialog that is there as long as it is rendered; Escape and the backdrop close it. What had the focus before gets it back. */
export function Dialog({ title, close, children, isWide }) {
  const ref = useRef();
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    dialog.showModal();
    // The browser gives the focus back to what had it, unless the dialog goes without being closed.
    return () => dialog.close();
  }, []);
  return (
    <dialog ref={ref} class={isWide ? 'wide' : ''} aria-labelledby={id} onCancel={(event) => { event.preventDefault(); close(); }} onMouseDown={(event) => event.target === ref.current && close()}>
      <div class="inner">
        <h2 id={id}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}

/** A field with its label, what it is for, and what is wrong with it. */
export function Field({ label, help, error, children, ...input }) {
  const id = useId();
  const about = help || error ? `${id}-about` : undefined;
  const shared = { id, 'aria-describedby': about, 'aria-invalid': error ? 'true' : undefined };
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children ? <select {...shared} {...input}>{children}</select> : <input {...shared} {...input} />}
      {about ? <p id={about} class={error ? 'trouble' : 'help'}>{error || help}</p> : null}
    </div>
  );
}

export const Check = ({ label, ...input }) => (
  <label class="check"><input type="checkbox" {...input} /> {label}</label>
);

/** A form. `send` gets its fields by name, and what it throws is shown; `refused` was thrown before. What can be forced gets a box for that. */
export function Form({ send, action, cancel, refused, isDangerous, isWaiting, isQuiet, children }) {
  const [error, setError] = useState(refused);
  const [isForceable, setForceable] = useState(canBeForced(refused));
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.currentTarget));
    setBusy(true);
    setError(undefined);
    try {
      await send(fields);
    } catch (trouble) {
      setError(trouble);
      if (canBeForced(trouble)) setForceable(true);
    }
    setBusy(false);
  };
  return (
    <form onSubmit={submit}>
      {typeof children === 'function' ? children(error?.fields ?? {}) : children}
      <Trouble error={error} />
      {isForceable ? <Check label="Do it all the same, although there is too little room" name={FORCE} value="true" /> : null}
      <div class="buttons">
        <button type="submit" class={isDangerous ? 'danger' : isQuiet ? '' : 'primary'} disabled={isBusy || isWaiting}>{isBusy ? 'Working…' : action}</button>
        {cancel ? <button type="button" onClick={cancel}>Cancel</button> : null}
      </div>
    </form>
  );
}

/** Asks before something that cannot be taken back, by having its name typed. */
export function Confirm({ title, name, action, run, close, children }) {
  const [typed, setTyped] = useState('');
  return (
    <Dialog title={title} close={close}>
      <Form action={action} isDangerous isWaiting={typed !== name} cancel={close} send={async (fields) => { await run(fields); close(); }}>
        {children}
        <Field label={`Type ${name} to go on`} value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
      </Form>
    </Dialog>
  );
}

export const Page = ({ title, actions, children }) => {
  useEffect(() => {
    document.title = `${title} · Settee`;
  }, [title]);
  return (
    <>
      <div class="head">
        <h1 tabIndex={-1}>{title}</h1>
        <div class="buttons">{actions}</div>
      </div>
      {children}
    </>
  );
};
