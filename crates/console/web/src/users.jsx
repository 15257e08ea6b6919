// Users, groups of users, and the roles of both: making, changing, locking and removing.
import { useState } from 'preact/hooks';
import { ask, drop, part, put } from './api.js';
import { Badge, Check, Confirm, Dialog, Field, Form, Loading, Page, Table, Trouble, attempt, note } from './parts.jsx';
import { usePoll } from './poll.js';

const load = async () => {
  const [users, groups, roles] = await Promise.all(['users', 'groups', 'roles'].map((what) => ask(`/settings/rbac/${what}`)));
  return { users, groups, roles };
};

const place = (user) => `/settings/rbac/users/${user.domain}/${part(user.id)}`;
const groupPlace = (group) => `/settings/rbac/groups/${part(group.id)}`;

/** A grant as REST writes it: `role`, or `role[bucket:scope:collection]`. */
function written({ role, bucket_name: bucket, scope_name: scope, collection_name: collection }) {
  if (!bucket) return role;
  const within = [scope, collection].filter((name) => name && name !== '*');
  return `${role}[${[bucket, ...within].join(':')}]`;
}

const own = (user) => user.roles.filter((role) => !role.origins || role.origins.some((origin) => origin.type === 'user'));

/** The field for roles, and what there is to be written into it. */
function Roles({ granted, roles, error }) {
  const known = [...new Map(roles.map((role) => [role.role, role])).values()];
  return (
    <>
      <Field label="Roles" name="roles" defaultValue={granted.map(written).join(',')} spellcheck={false} error={error} help="Separated by commas; a role on a bucket, scope or collection as data_reader[songs] or data_reader[songs:scope:collection]." />
      <details>
        <summary>All roles</summary>
        <Table caption="Roles" rows={known} keyOf={(row) => row.role} columns={[
          { title: 'Role', value: (row) => row.role, show: (row) => <code>{row.role}{row.bucket_name ? '[…]' : ''}</code> },
          { title: 'For', value: (row) => row.desc },
        ]} />
      </details>
    </>
  );
}

/** How the name of a group's box in the form begins. */
const BOX = 'in/';

function Edit({ user, groups, roles, close }) {
  const isNew = !user;
  const send = async ({ id, name, password, roles: granted, ...boxes }) => {
    const target = user ?? { domain: 'local', id };
    const chosen = Object.keys(boxes).filter((box) => box.startsWith(BOX)).map((box) => box.slice(BOX.length));
    // What a request leaves out is taken from the user.
    await put(place(target), { name, roles: granted, groups: chosen.join(','), password: password || undefined });
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
            {groups.length ? (
              <fieldset>
                <legend>Groups</legend>
                {groups.map(({ id }) => <Check key={id} label={id} name={BOX + id} defaultChecked={user?.groups.includes(id)} />)}
              </fieldset>
            ) : null}
            <Roles granted={user ? own(user) : []} roles={roles} error={errors.roles} />
          </>
        )}
      </Form>
    </Dialog>
  );
}

function EditGroup({ group, roles, close }) {
  const send = async ({ id, description, roles: granted }) => {
    const target = group ?? { id };
    await put(groupPlace(target), { description, roles: granted, ldap_group_ref: group?.ldap_group_ref });
    note(`Group ${target.id} is saved.`);
    close();
  };
  return (
    <Dialog title={group ? `Group ${group.id}` : 'New group'} close={close} isWide>
      <Form action="Save" send={send} cancel={close}>
        {(errors) => (
          <>
            {group ? null : <Field label="Name of the group" name="id" required autocomplete="off" spellcheck={false} autofocus />}
            <Field label="What it is for" name="description" defaultValue={group?.description ?? ''} autocomplete="off" />
            <Roles granted={group?.roles ?? []} roles={roles} error={errors.roles} />
          </>
        )}
      </Form>
    </Dialog>
  );
}

function Groups({ seen, open }) {
  const members = (group) => seen.data.users.filter((user) => user.groups.includes(group.id)).map((user) => user.id);
  const columns = [
    { title: 'Group', value: (row) => row.id, show: (row) => <b>{row.id}</b> },
    { title: 'What it is for', value: (row) => row.description },
    { title: 'Roles', value: (row) => row.roles.map(written).join(', '), show: (row) => row.roles.map(written).join(', ') || 'none' },
    { title: 'Members', value: (row) => members(row).length, show: (row) => members(row).join(', ') || 'nobody' },
    {
      title: 'What can be done',
      show: (row) => (
        <span class="even">
          <button type="button" class="small" onClick={() => open({ what: 'group', group: row })}>Change<span class="hidden"> group {row.id}</span></button>{' '}
          <button type="button" class="small" onClick={() => open({ what: 'remove group', group: row })}>Remove<span class="hidden"> group {row.id}</span></button>
        </span>
      ),
    },
  ];
  return (
    <section class="card" aria-labelledby="groups">
      <div class="head">
        <h2 id="groups">Groups</h2>
        <button type="button" onClick={() => open({ what: 'group' })}>New group</button>
      </div>
      <Table caption="Groups" columns={columns} rows={seen.data.groups} keyOf={(row) => row.id} empty="There are no groups." />
      <p class="help">A user has the roles of its groups beside its own. Who is in a group is part of the user.</p>
    </section>
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
    { title: 'Groups', value: (row) => row.groups.join(', ') },
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
      <div class="cards">
        <section class="card">
          <Trouble error={seen.data && seen.error} />
          {seen.data ? <Table caption="Users" columns={columns} rows={seen.data.users} keyOf={(row) => `${row.domain} ${row.id}`} empty="There is nobody but the administrator." /> : <Loading of={seen} />}
        </section>
        {seen.data ? <Groups seen={seen} open={setDialog} /> : null}
      </div>
      {dialog?.what === 'edit' ? <Edit user={dialog.user} groups={seen.data.groups} roles={seen.data.roles} close={close} /> : null}
      {dialog?.what === 'group' ? <EditGroup group={dialog.group} roles={seen.data.roles} close={close} /> : null}
      {dialog?.what === 'remove' ? (
        <Confirm title={`Remove ${dialog.user.id}`} name={dialog.user.id} action="Remove the user" close={close} run={async () => { await drop(place(dialog.user)); note(`${dialog.user.id} is removed.`); }}>
          <p>The user can log in no more, and what is open ends.</p>
        </Confirm>
      ) : null}
      {dialog?.what === 'remove group' ? (
        <Confirm title={`Remove group ${dialog.group.id}`} name={dialog.group.id} action="Remove the group" close={close} run={async () => { await drop(groupPlace(dialog.group)); note(`Group ${dialog.group.id} is removed.`); }}>
          <p>Its members lose the roles that they have by it alone.</p>
        </Confirm>
      ) : null}
    </Page>
  );
}
