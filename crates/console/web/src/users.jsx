// Users and their roles: making, changing, locking and removing.
import { useState } from 'preact/hooks';
import { ask, drop, part, put } from './api.js';
import { Badge, Confirm, Dialog, Field, Form, Loading, Page, Table, Trouble, attempt, note } from './parts.jsx';
import { usePoll } from './poll.js';

const load = async () => {
  const [users, roles] = await Promise.all([ask('/settings/rbac/users'), ask('/settings/rbac/roles')]);
  return { users, roles };
};

const place = (user) => `/settings/rbac/users/${user.domain}/${part(user.id)}`;

/** A grant as REST writes it: `role`, or `role[bucket:scope:collection]`. */
function written({ role, bucket_name: bucket, scope_name: scope, collection_name: collection }) {
  if (!bucket) return role;
  const within = [scope, collection].filter((name) => name && name !== '*');
  return `${role}[${[bucket, ...within].join(':')}]`;
}

const own = (user) => user.roles.filter((role) => !role.origins || role.origins.some((origin) => origin.type === 'user'));

function Edit({ user, roles, close }) {
  const isNew = !user;
  const known = [...new Map(roles.map((role) => [role.role, role])).values()];
  const send = async ({ id, name, password, roles: granted }) => {
    const target = user ?? { domain: 'local', id };
    await put(place(target), { name, roles: granted, password: password || undefined });
    note(`${target.id} is saved.`);
    close();
  };
  return (
    <Dialog title={isNew ? 'New user' : `User ${user.id}`} close={close} isWide>
      <Form action="Save" send={send} cancel={close}>
        {(errors) => (
          <>
            {isNew ? <Field label="User name" name="id" required autocomplete="off" spellcheck={false} autofocus /> : null}
            <Field label="Full name" name="name" defaultValue={user?.name ?? ''} autocomplete="off" />
            {user?.domain === 'external' ? null : <Field label={isNew ? 'Password' : 'New password, if it is to change'} name="password" type="password" required={isNew} autocomplete="new-password" error={errors.password} />}
            <Field label="Roles" name="roles" defaultValue={user ? own(user).map(written).join(',') : ''} spellcheck={false} error={errors.roles} help="Separated by commas; a role on a bucket, scope or collection as data_reader[songs] or data_reader[songs:scope:collection]." />
            <details>
              <summary>All roles</summary>
              <Table caption="Roles" rows={known} keyOf={(row) => row.role} columns={[
                { title: 'Role', value: (row) => row.role, show: (row) => <code>{row.role}{row.bucket_name ? '[…]' : ''}</code> },
                { title: 'For', value: (row) => row.desc },
              ]} />
            </details>
          </>
        )}
      </Form>
    </Dialog>
  );
}

export function Users() {
  const seen = usePoll(load, 10_000);
  const [dialog, setDialog] = useState();
  const close = () => { setDialog(undefined); seen.refresh(); };
  const lock = async (user) => {
    await attempt(() => ask(place(user), { method: 'PATCH', form: { locked: !user.locked } }), user.locked ? `${user.id} may log in again.` : `${user.id} is locked, and what this user had opened has ended.`);
    seen.refresh();
  };
  const columns = [
    { title: 'User', value: (row) => row.id, show: (row) => <><b>{row.id}</b> {row.locked ? <Badge kind="warn">locked</Badge> : null}</> },
    { title: 'Name', value: (row) => row.name ?? '' },
    { title: 'Kind', value: (row) => row.domain },
    { title: 'Roles', value: (row) => row.roles.map(written).join(', '), show: (row) => row.roles.map(written).join(', ') || 'none' },
    {
      title: 'What can be done',
      show: (row) => (
        <span class="even">
          <button type="button" class="small" onClick={() => setDialog({ what: 'edit', user: row })}>Change<span class="hidden"> {row.id}</span></button>{' '}
          {row.domain === 'local' ? <button type="button" class="small" onClick={() => lock(row)}>{row.locked ? 'Unlock' : 'Lock'}<span class="hidden"> {row.id}</span></button> : null}{' '}
          <button type="button" class="small" onClick={() => setDialog({ what: 'remove', user: row })}>Remove<span class="hidden"> {row.id}</span></button>
        </span>
      ),
    },
  ];
  return (
    <Page title="Users" actions={<button type="button" class="primary" disabled={!seen.data} onClick={() => setDialog({ what: 'edit' })}>New user</button>}>
      <section class="card">
        <Trouble error={seen.data && seen.error} />
        {seen.data ? <Table caption="Users" columns={columns} rows={seen.data.users} keyOf={(row) => `${row.domain} ${row.id}`} empty="There is nobody but the administrator." /> : <Loading of={seen} />}
      </section>
      {dialog?.what === 'edit' ? <Edit user={dialog.user} roles={seen.data.roles} close={close} /> : null}
      {dialog?.what === 'remove' ? (
        <Confirm title={`Remove ${dialog.user.id}`} name={dialog.user.id} action="Remove the user" close={close} run={async () => { await drop(place(dialog.user)); note(`${dialog.user.id} is removed.`); }}>
          <p>The user can log in no more, and what is open ends.</p>
        </Confirm>
      ) : null}
    </Page>
  );
}
