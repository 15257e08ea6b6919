// Alerts: what fires now with what to do about it, every kind there is, what is silenced, and where alerts are posted.
import { useState } from 'preact/hooks';
import { ask, drop, part, post, put } from './api.js';
import { count, duration, moment } from './format.js';
import { Badge, Check, Coded, Dialog, Field, Form, Loading, Page, Table, Trouble, attempt, note } from './parts.jsx';
import { useAsk, usePoll } from './poll.js';
import { to } from './route.js';

const LEVELS = { critical: ['bad', 'Act'], warning: ['warn', 'Look'] };
const levelOf = (level) => {
  const [kind, text] = LEVELS[level] ?? ['', level];
  return <Badge kind={kind}>{text}</Badge>;
};
const look = () => Promise.all([ask('/settee/alerts'), ask('/settee/alerts/kinds'), ask('/settee/alerts/silences'), ask('/pools/nodes')]);
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
            <p class="quiet"><a href={to('alerts', 'guide', alert.name)}>{alert.name}</a>, told by {alert.seenBy.join(', ')} since {moment(since)} ({duration((Date.now() - since) / 1000)})</p>
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
    { title: 'Alert', value: (row) => row.name, show: (row) => <a href={to('alerts', 'guide', row.name)}><code class="even">{row.name}</code></a> },
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

/** The node whose silence an alert asks for: one that is about the node itself says the same of every other node. */
const toldBy = (alert) => (alert.subject === '' ? alert.node : '');

/** Whether alerts are mailed, to whom, and by which server. A password is told to nobody, so it is asked for with each change. */
function Mail() {
  const seen = useAsk('/settings/alerts');
  const [isOpen, setOpen] = useState(false);
  if (seen.error?.status === 403) return null;
  if (!seen.data) return <section class="card"><Loading of={seen} /></section>;
  const { enabled, recipients, sender, emailServer, alerts, pop_up_alerts: popUps, settee: told } = seen.data;
  const form = ({ enabled: isOn, emailEncrypt, ...fields }) => ({
    ...fields, enabled: Boolean(isOn), emailEncrypt: Boolean(emailEncrypt), alerts: alerts.join(','), pop_up_alerts: popUps.join(','),
  });
  const save = async (fields) => { await post('/settings/alerts', form(fields)); note('Saved.'); setOpen(false); seen.refresh(); };
  const tryIt = async (event) => {
    const fields = Object.fromEntries(new FormData(event.currentTarget.form));
    await attempt(() => post('/settings/alerts/testEmail', form(fields)), 'The mail server has taken a mail.');
  };
  return (
    <section class="card" aria-labelledby="mail">
      <h2 id="mail">Who gets a mail</h2>
      {enabled ? <p>{recipients.join(', ')}, by <code>{emailServer.host}:{emailServer.port}</code>.</p> : <p class="quiet">Nobody.</p>}
      {told?.failed ? <p class="trouble">The node that you look at has sent {count(told.sent)} mails and failed with {count(told.failed)}.{told.lastFailure?.text ? ` The last time: ${told.lastFailure.text}` : ''}</p> : null}
      {isOpen ? (
        <Form action="Save" send={save} cancel={() => setOpen(false)}>
          {(errors) => (
            <>
              <Check label="Mail alerts" name="enabled" defaultChecked={enabled} />
              <Field label="To" name="recipients" required defaultValue={recipients.join(', ')} spellcheck={false} error={errors.recipients} help="Addresses, separated by commas." />
              <Field label="From" name="sender" required defaultValue={sender} spellcheck={false} error={errors.sender} />
              <Field label="Mail server" name="emailHost" required defaultValue={emailServer.host} spellcheck={false} error={errors.emailHost} />
              <Field label="Its port" name="emailPort" type="number" min="1" max="65535" required defaultValue={emailServer.port} error={errors.emailPort} />
              <Check label="Under TLS" name="emailEncrypt" defaultChecked={emailServer.encrypt} />
              <Field label="User of the mail server" name="emailUser" defaultValue={emailServer.user} autocomplete="off" spellcheck={false} error={errors.emailUser} />
              <Field label="Password of that user" name="emailPass" type="password" autocomplete="off" error={errors.emailPass} help="It is not shown: type it again with each change." />
              <button type="button" class="small" onClick={tryIt}>Send a mail to try it</button>
            </>
          )}
        </Form>
      ) : <div class="buttons"><button type="button" onClick={() => setOpen(true)}>Change<span class="hidden"> who gets a mail</span></button></div>}
    </section>
  );
}

function Silence({ alert, kinds, nodes, close }) {
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
            <Field label="Told by" name="node" error={errors.node} help="Other nodes go on sending it.">
              <option value="">every node</option>
              {nodes.map((name) => <option key={name} value={name} selected={name === toldBy(alert)}>{name}</option>)}
            </Field>
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
    { title: 'Told by', value: (row) => row.node ?? '', show: (row) => row.node ?? <span class="quiet">every node</span> },
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

/** The entry of the operating guide about an alert: where mails, posts, logs and rules of Prometheus link to. */
function Guide({ name }) {
  const seen = usePoll(() => Promise.all([ask('/settee/alerts/kinds'), ask('/settee/alerts')]), 5000);
  if (!seen.data) return <Page title={name}><Loading of={seen} /></Page>;
  const [{ kinds }, { firing }] = seen.data;
  const about = kinds.find((one) => one.name === name);
  const now = firing.filter((one) => one.name === name);
  const after = (seconds) => (seconds ? `after ${duration(seconds)}` : 'at once');
  return (
    <Page title={name} actions={<a href={to('alerts')}>All alerts</a>}>
      <Trouble error={seen.error} />
      {about ? (
        <div class="cards">
          <section class="card" aria-labelledby="now">
            <h2 id="now">Does it fire now?</h2>
            {now.length ? <ul class="findings">{now.map((one) => <li key={`${one.node} ${one.subject}`}>{levelOf(one.level)} <span><b>{one.text}</b> Since {moment(Date.parse(one.since))}.</span></li>)}</ul> : <p class="answer">No.</p>}
          </section>
          <section class="card" aria-labelledby="act">
            <h2 id="act">What to do</h2>
            <p><Coded text={about.act} /></p>
          </section>
          <section class="card" aria-labelledby="means">
            <h2 id="means">What it means</h2>
            <p>{levelOf(about.level)} <Coded text={about.means} /></p>
            <p class="quiet">It fires {after(about.firesAfterSecs)}, and is over {after(about.clearsAfterSecs)}.</p>
          </section>
          <section class="card" aria-labelledby="cause">
            <h2 id="cause">What causes it</h2>
            <p><Coded text={about.cause} /></p>
            <p class="help">Settee’s documents have the same in <code>{about.guide}</code>.</p>
          </section>
        </div>
      ) : <p class="trouble">This node knows no alert of this name. It may be of another version than the one that has told it.</p>}
    </Page>
  );
}

export const Alerts = ({ path: [what, name] }) => (what === 'guide' && name ? <Guide name={name} /> : <All />);

function All() {
  const seen = usePoll(look, 3000);
  const [silenced, silence] = useState();
  if (!seen.data) return <Page title="Alerts"><Loading of={seen} /></Page>;
  const [{ firing, missingNodes }, { kinds }, { silences }, { nodes }] = seen.data;
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
        <Mail />
        <Kinds kinds={kinds} firing={firing} />
      </div>
      {silenced ? <Silence alert={silenced} kinds={kinds} nodes={nodes.map((node) => node.hostname)} close={() => { silence(undefined); seen.refresh(); }} /> : null}
    </Page>
  );
}
