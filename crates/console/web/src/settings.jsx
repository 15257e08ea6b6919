// Settings of the cluster, and the password of the user who is logged in.
import { farewell, post, put, user } from './api.js';
import { Check, Field, Form, Loading, Page, note } from './parts.jsx';
import { useAsk } from './poll.js';

const save = (path, read) => async (fields) => {
  await post(path, read(fields));
  note('Saved.');
};
const on = (field) => (field ? 'true' : 'false');

const Section = ({ title, children }) => <section class="card"><h2>{title}</h2>{children}</section>;

function Cluster() {
  const seen = useAsk('/pools/default');
  if (!seen.data) return <Loading of={seen} />;
  return (
    <Form action="Save" isQuiet send={save('/pools/default', (fields) => fields)}>
      {(errors) => (
        <>
          <Field label="Name of the cluster" name="clusterName" defaultValue={seen.data.clusterName} error={errors.clusterName} />
          <Field label="Memory for buckets on each node, in MiB" name="memoryQuota" type="number" min="256" defaultValue={seen.data.memoryQuota} error={errors.memoryQuota} />
        </>
      )}
    </Form>
  );
}

function Failover() {
  const seen = useAsk('/settings/autoFailover');
  if (!seen.data) return <Loading of={seen} />;
  return (
    <Form action="Save" isQuiet send={save('/settings/autoFailover', ({ enabled, ...fields }) => ({ enabled: on(enabled), ...fields }))}>
      {(errors) => (
        <>
          <Check label="Fail a node over that does not answer" name="enabled" defaultChecked={seen.data.enabled} />
          <Field label="After so many seconds" name="timeout" type="number" min="1" defaultValue={seen.data.timeout} error={errors.timeout} />
          <Field label="Nodes at most, until an administrator resets the count" name="maxCount" type="number" min="1" defaultValue={seen.data.maxCount} error={errors.maxCount} help={`So far: ${seen.data.count}.`} />
        </>
      )}
    </Form>
  );
}

function Audit() {
  const seen = useAsk('/settings/audit');
  if (!seen.data) return <Loading of={seen} />;
  return (
    <Form action="Save" isQuiet send={save('/settings/audit', ({ auditdEnabled, ...fields }) => ({ auditdEnabled: on(auditdEnabled), ...fields }))}>
      {(errors) => (
        <>
          <Check label="Write down logins and changes" name="auditdEnabled" defaultChecked={seen.data.auditdEnabled} />
          <Field label="A new file after so many bytes" name="rotateSize" type="number" min="0" defaultValue={seen.data.rotateSize} error={errors.rotateSize} />
          <Field label="A new file after so many seconds" name="rotateInterval" type="number" min="0" defaultValue={seen.data.rotateInterval} error={errors.rotateInterval} help="The files are audit.log and audit-TIME.log in the data directory of each node." />
        </>
      )}
    </Form>
  );
}

/** Whether SDKs are asked what they measure. */
function Telemetry() {
  const seen = useAsk('/settings/appTelemetry');
  if (!seen.data) return <Loading of={seen} />;
  return (
    <Form action="Save" isQuiet send={save('/settings/appTelemetry', ({ enabled, ...fields }) => ({ enabled: on(enabled), ...fields }))}>
      {(errors) => (
        <>
          <Check label="Ask SDKs how long their operations took" name="enabled" defaultChecked={seen.data.enabled} />
          <Field label="Every so many seconds" name="scrapeIntervalSeconds" type="number" min="60" max="600" defaultValue={seen.data.scrapeIntervalSeconds} error={errors.scrapeIntervalSeconds} />
          <Field label="Clients of each node at most" name="maxScrapeClientsPerNode" type="number" min="1" defaultValue={seen.data.maxScrapeClientsPerNode} error={errors.maxScrapeClientsPerNode} help="The page Latency shows what clients tell." />
        </>
      )}
    </Form>
  );
}

const PROBED = [['none', 'no bucket'], ['objectives', 'buckets with an objective'], ['all', 'every bucket']];

/** What nodes try on one another. */
function Probe() {
  const seen = useAsk('/settee/probe');
  if (!seen.data) return <Loading of={seen} />;
  const { settings } = seen.data;
  const send = async ({ writes, ...fields }) => {
    await put('/settee/probe', { writes: on(writes), ...fields });
    note('Saved.');
  };
  return (
    <Form action="Save" isQuiet send={send}>
      {(errors) => (
        <>
          <Field label="Each node tries" name="buckets" error={errors.buckets}>{PROBED.map(([value, title]) => <option key={value} value={value} selected={value === settings.buckets}>{title}</option>)}</Field>
          <Field label="Every so many seconds, on every node" name="periodSecs" type="number" min="1" max="300" defaultValue={settings.periodSecs} error={errors.periodSecs} />
          <Check label="Write documents of the probe’s own, too" name="writes" defaultChecked={settings.writes} />
        </>
      )}
    </Form>
  );
}

async function changePassword({ password, again }) {
  if (password !== again) throw new Error('The two passwords differ. Type them again.');
  await post('/controller/changePassword', { password });
  // The session was one of the old password.
  farewell.value = 'The password is changed. Log in with it.';
  user.value = null;
}

const Password = () => (
  <Form action="Change it" isQuiet send={changePassword}>
    {(errors) => (
      <>
        <Field label="New password" name="password" type="password" required autocomplete="new-password" error={errors.password} />
        <Field label="The same password again" name="again" type="password" required autocomplete="new-password" />
        <p class="help">It ends all your sessions and connections.</p>
      </>
    )}
  </Form>
);

export const Settings = () => (
  <Page title="Settings">
    <div class="grid">
      <Section title="Cluster"><Cluster /></Section>
      <Section title="Automatic failover"><Failover /></Section>
      <Section title="What clients measure"><Telemetry /></Section>
      <Section title="Probes"><Probe /></Section>
      <Section title="Audit trail"><Audit /></Section>
      <Section title="Your password"><Password /></Section>
    </div>
  </Page>
);
