// Alerts: what fires now with what to do about it, every kind there is, what is silenced, and where alerts are posted.
import { useState } from 'preact/hooks';
import { ask, drop, part, post, put } from './api.js';
import { duration, moment } from './format.js';
import { Badge, Coded, Dialog, Field, Form, Loading, Page, Table, Trouble, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { to } from './route.js';

const LEVELS = { critical: ['bad', 'Act'], warning: ['warn', 'Look'] };
const levelOf = (level) => {
  const [kind, text] = LEVELS[level] ?? ['', level];
  return <Badge kind={kind}>{text}</Badge>;
};
const look = () => Promise.all([ask('/settee/alerts'), ask('/settee/alerts/kinds'), ask('/settee/alerts/silences')]);
/** How long a silence may last, in minutes. */
const SPANS = [[30, '30 minutes'], [120, '2 hours'], [480, '8 hours'], [1440, 'a day'], [10080, 'a week'], [43200, '30 days']];

function Firing({ firing, kinds, silence }) {
  if (!firing.length) return <p class="answer">No alert fires.</p>;
  return (
    <ul class="alerts">
      {firing.map((alert) => {
        const about = kinds.find((one) => one.name === alert.name);
        const since = Date.parse(alert.since);
        return (
          <li key={`${alert.node} ${alert.name} ${alert.subject}`}>
            <p>{levelOf(alert.level)} <b>{alert.text}</b>{alert.silencedUntil ? <> <Badge>silent until {moment(Date.parse(alert.silencedUntil))}</Badge></> : null}</p>
            <p class="quiet">{alert.name} on {alert.node}, since {moment(since)} ({duration((Date.now() - since) / 1000)})</p>
            {about ? <p><b>What to do.</b> <Coded text={about.act} /></p> : null}
            {about ? <p class="quiet"><Coded text={`${about.means} ${about.cause}`} /></p> : null}
            {alert.silencedUntil ? null : <button type="button" class="small" onClick={() => silence(alert)}>Silence it<span class="hidden"> {alert.name} {alert.subject}</span></button>}
          </li>
        );
      })}
    </ul>
  );
}

function Kinds({ kinds, firing }) {
  const columns = [
    { title: 'Alert', value: (row) => row.name, show: (row) => <code class="even">{row.name}</code> },
    { title: 'Level', value: (row) => row.level, show: (row) => levelOf(row.level) },
    { title: 'Means', value: (row) => row.means },
    { title: 'What to do', value: (row) => row.act, show: (row) => <Coded text={row.act} /> },
    { title: 'Fires after', value: (row) => row.firesAfterSecs, show: (row) => (row.firesAfterSecs ? duration(row.firesAfterSecs) : 'at once'), isNumber: true },
    { title: 'Now', value: (row) => -firing.filter((one) => one.name === row.name).length, show: (row) => (firing.some((one) => one.name === row.name) ? <Badge kind="warn">fires</Badge> : '') },
  ];
  return (
    <section class="card" aria-labelledby="kinds">
      <h2 id="kinds">Every alert</h2>
      <Table caption="Every alert" columns={columns} rows={kinds} keyOf={(row) => row.name} />
    </section>
  );
}

/** Where alerts are posted. Users without every right may not see it. */
function Webhook() {
  const seen = useAsk('/settee/alerts/webhook');
  const [isOpen, setOpen] = useState(false);
  if (seen.error?.status === 403) return null;
  const address = seen.data?.url;
  const save = async ({ url }) => { await put('/settee/alerts/webhook', { url }); note('Alerts are posted there from now on.'); setOpen(false); seen.refresh(); };
  const end = async () => { await drop('/settee/alerts/webhook'); note('Alerts are posted nowhere.'); seen.refresh(); };
  return (
    <section class="card" aria-labelledby="webhook">
      <h2 id="webhook">Where alerts are posted</h2>
      {address ? <p>Each alert that begins or ends is posted to <code>{address}</code>.</p> : <p class="quiet">Nowhere: somebody has to look here, or Prometheus has to.</p>}
      {isOpen ? (
        <Form action="Post them there" send={save} cancel={() => setOpen(false)}>
          {(errors) => <Field label="Address" name="url" type="url" required defaultValue={address} placeholder="http://…" error={errors.url} />}
        </Form>
      ) : (
        <div class="buttons">
          <button type="button" onClick={() => setOpen(true)}>{address ? 'Change' : 'Post them to an address'}</button>
          {address ? <button type="button" onClick={() => end().catch((error) => note(error.message, true))}>Post them nowhere</button> : null}
        </div>
      )}
    </section>
  );
}

function Silence({ alert, kinds, close }) {
  const send = async (fields) => {
    await post('/settee/alerts/silences', Object.fromEntries(Object.entries(fields).filter(([, value]) => value)));
    note('The silence has begun.');
    close();
  };
  return (
    <Dialog title="Silence an alert" close={close}>
      <Form action="Silence it" send={send} cancel={close}>
        {(errors) => (
          <>
            <p class="help">It is sent to nobody for a while. Pages and metrics go on showing it.</p>
            <Field label="Alert" name="alert" error={errors.alert}>{kinds.map(({ name }) => <option key={name} value={name} selected={name === alert?.name}>{name}</option>)}</Field>
            <Field label="Only about" name="subject" defaultValue={alert?.subject} spellcheck={false} autocomplete="off" error={errors.subject} help="A bucket, a node, or what stands behind the alert’s name. Empty: whatever it is about." />
            <Field label="For" name="minutes" error={errors.minutes}>{SPANS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}</Field>
            <Field label="Why" name="comment" maxLength={512} error={errors.comment} help="For the others who look after this cluster." />
          </>
        )}
      </Form>
    </Dialog>
  );
}

function Silences({ silences, silence, refresh }) {
  const end = async (row) => {
    try {
      await drop(`/settee/alerts/silences/${part(row.id)}`);
      note('The silence is over.');
    } catch (error) {
      note(error.message, true);
    }
    refresh();
  };
  const columns = [
    { title: 'Until', value: (row) => row.until, show: (row) => <span class="even">{moment(Date.parse(row.until))}</span> },
    { title: 'Alert', value: (row) => row.alert, show: (row) => <code class="even">{row.alert}</code> },
    { title: 'Only about', value: (row) => row.subject ?? '', show: (row) => row.subject ?? <span class="quiet">whatever it is about</span> },
    { title: 'Why', value: (row) => row.comment },
    { title: 'By', value: (row) => row.by },
    { title: 'What can be done', show: (row) => <button type="button" class="small" onClick={() => end(row)}>End it<span class="hidden"> {row.alert}</span></button> },
  ];
  return (
    <section class="card" aria-labelledby="silences">
      <div class="head">
        <h2 id="silences">Silences</h2>
        <button type="button" onClick={() => silence({})}>New silence</button>
      </div>
      <Table caption="Silences" columns={columns} rows={silences} keyOf={(row) => row.id} empty="No alert is silenced." />
    </section>
  );
}

export function Alerts() {
  const seen = usePoll(look, 3000);
  const [silenced, silence] = useState();
  if (!seen.data) return <Page title="Alerts"><Loading of={seen} /></Page>;
  const [{ firing, missingNodes }, { kinds }, { silences }] = seen.data;
  return (
    <Page title="Alerts">
      <Trouble error={seen.error} />
      <div class="cards">
        <section class="card" aria-label="Alerts that fire">
          {missingNodes.length ? <p class="trouble">These nodes do not say what fires on them: {missingNodes.join(', ')}. <a href={to('servers')}>Servers</a></p> : null}
          <Firing firing={firing} kinds={kinds} silence={silence} />
        </section>
        <Silences silences={silences} silence={silence} refresh={seen.refresh} />
        <Webhook />
        <Kinds kinds={kinds} firing={firing} />
      </div>
      {silenced ? <Silence alert={silenced} kinds={kinds} close={() => { silence(undefined); seen.refresh(); }} /> : null}
    </Page>
  );
}
