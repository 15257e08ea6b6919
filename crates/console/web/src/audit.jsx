// The audit trail: who has done what, as all nodes have written it down. Shown newest first, and further back as somebody asks for it.
import { useState } from 'preact/hooks';
import { ask } from './api.js';
import { count, moment, plural } from './format.js';
import { Badge, Field, Loading, Page, Table, Trouble, attempt } from './parts.jsx';
import { useAsk } from './poll.js';
import { to } from './route.js';

/** The names of events, as nodes write them. */
const EVENTS = [
  'login success', 'login failure', 'logout', 'access denied', 'cluster changed', 'node changed', 'bucket changed', 'bucket flushed', 'collections changed',
  'views changed', 'users changed', 'password changed', 'settings changed', 'document read', 'document changed',
];
const BAD = ['login failure', 'access denied'];

const when = (event) => Number(event.timestamp_ms);
const what = ({ subject, details, mechanism }) => [subject, details, mechanism].filter(Boolean).join(': ');

const columns = [
  { title: 'When', value: (row) => -row.number, show: (row) => <time class="even" dateTime={new Date(when(row.event)).toISOString()}>{moment(when(row.event))}</time> },
  { title: 'Event', value: (row) => row.event.name, show: (row) => <Badge kind={BAD.includes(row.event.name) ? 'warn' : ''}>{row.event.name}</Badge> },
  { title: 'Who', value: (row) => row.event.user ?? '', show: (row) => row.event.user || <span class="quiet">nobody</span> },
  { title: 'From', value: (row) => row.event.peer ?? '', show: (row) => <span class="even">{row.event.peer ?? '–'}</span> },
  {
    title: 'What', value: (row) => what(row.event),
    show: ({ event }) => (
      <>
        {event.repeated ? `${count(event.repeated)} more within ${event.within_secs} s` : what(event) || '–'}
        {event.events_lost_before ? <><br /><Badge kind="bad">{plural(event.events_lost_before, 'event')} before it were lost</Badge></> : null}
      </>
    ),
  },
  { title: 'Node', value: (row) => row.event.node ?? '', show: (row) => <span class="even">{row.event.node}</span> },
];

export function Audit() {
  const [user, setUser] = useState('');
  const [event, setEvent] = useState('');
  const asked = new URLSearchParams({ limit: 100, ...(user && { user }), ...(event && { event }) });
  const first = useAsk(`/settee/audit?${asked}`);
  const [more, setMore] = useState({});
  // What was found behind a first page that is shown no more is none of this one.
  const seen = first.data && more.behind === first.data ? more : first.data;
  const further = () => attempt(async () => {
    const told = await ask(`/settee/audit?${asked}&${new URLSearchParams({ before: seen.before })}`);
    setMore({ ...told, behind: first.data, events: [...seen.events, ...told.events], unreadable: seen.unreadable + told.unreadable });
  });
  if (first.error?.status === 403) return <Page title="Audit"><p class="card">The audit trail names users and addresses: your user may not see it.</p></Page>;
  return (
    <Page title="Audit" actions={<button type="button" onClick={first.refresh}>Look again</button>}>
      <section class="card" aria-label="Audit trail">
        <div class="bar">
          <Field label="Event" value={event} onChange={(change) => setEvent(change.currentTarget.value)}>
            <option value="">every one</option>
            {EVENTS.map((name) => <option key={name} value={name} selected={name === event}>{name}</option>)}
          </Field>
          <Field label="User" value={user} spellcheck={false} autocomplete="off" maxLength={256} onChange={(change) => setUser(change.currentTarget.value.trim())} />
        </div>
        <Trouble error={first.data && first.error} />
        {seen ? (
          <>
            {seen.missingNodes.length ? <p class="trouble">Without what these nodes have written down: {seen.missingNodes.join(', ')}. <a href={to('servers')}>Servers</a></p> : null}
            {seen.unreadable ? <p class="trouble">{plural(seen.unreadable, 'line')} cannot be read: torn by a crash, or damaged.</p> : null}
            <Table caption="Audit trail" columns={columns} rows={seen.events.map((one, number) => ({ event: one, number: -number }))} keyOf={(row) => row.number} empty={seen.before ? 'No such event so far.' : 'No such event.'} />
            {seen.before ? <div class="buttons"><button type="button" onClick={further}>Look further back</button></div> : <p class="quiet">This is all that the nodes have kept.</p>}
          </>
        ) : <Loading of={first} />}
        <p class="help">Each node writes its own trail: <code>audit.log</code> and <code>audit-TIME.log</code> in its data directory. What goes into them is set on the page <a href={to('settings')}>Settings</a>. Acts that one user or address repeats are counted.</p>
      </section>
    </Page>
  );
}
