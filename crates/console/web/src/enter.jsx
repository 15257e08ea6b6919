// Before anybody is logged in: the log-in page, and on a new node the page that sets it up.
import { farewell, isInitialised, logIn, post } from './api.js';
import { Field, Form, note } from './parts.jsx';

const LogIn = () => (
  <Form action="Log in" send={({ user, password }) => logIn(user, password)}>
    <Field label="User name" name="user" autocomplete="username" autocapitalize="none" spellcheck={false} required autofocus />
    <Field label="Password" name="password" type="password" autocomplete="current-password" required />
  </Form>
);

async function setUp({ cluster, username, password, again, memory }) {
  if (password !== again) throw new Error('The two passwords differ. Type them again.');
  await post('/clusterInit', { clusterName: cluster, username, password, memoryQuota: memory || undefined, services: 'kv', port: 'SAME' });
  isInitialised.value = true;
  note('The node is set up.');
  await logIn(username, password);
}

const SetUp = () => (
  <Form action="Set this node up" send={setUp}>
    {(errors) => (
      <>
        <p class="help">This node is new. To make it part of a cluster instead, add it on the page Servers of that cluster.</p>
        <Field label="Name of the cluster" name="cluster" maxLength={256} autofocus />
        <Field label="Administrator’s name" name="username" defaultValue="Administrator" autocomplete="username" required error={errors.username} />
        <Field label="Password" name="password" type="password" autocomplete="new-password" required error={errors.password} />
        <Field label="The same password again" name="again" type="password" autocomplete="new-password" required />
        <Field label="Memory for buckets, in MiB" name="memory" type="number" min="256" help="Without a figure it is 60 % of the machine’s memory." error={errors.memoryQuota} />
      </>
    )}
  </Form>
);

export const Enter = ({ isNew }) => (
  <main class="enter">
    <img src="icon-1.svg" alt="" width="56" height="56" />
    <h1>{isNew ? 'Set up Settee' : 'Settee'}</h1>
    {farewell.value ? <p class="farewell" role="status">{farewell.value}</p> : null}
    {isNew ? <SetUp /> : <LogIn />}
  </main>
);
