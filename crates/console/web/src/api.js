// Requests to the node that has served the page, and what its answers mean.
import { signal } from '@preact/signals';

/** Who is logged in: `undefined` while that is not known, `null` for nobody. */
export const user = signal(undefined);
/** Whether somebody has set the node up. */
export const isInitialised = signal(true);
/** Why the log-in page is shown, if there is a reason. */
export const farewell = signal('');
/** Whether the node has answered last time. */
export const isReachable = signal(true);

/** An answer that is no success. `fields` has texts by parameter. */
export class Refused extends Error {
  constructor(status, texts, fields = {}) {
    super(texts.filter(Boolean).join(' ') || `The node has answered ${status}.`);
    this.status = status;
    this.fields = fields;
  }
}

/** The texts of a refusal, whichever of REST's forms it has. */
function refusal(status, body) {
  const text = (one) => (typeof one === 'string' ? one : JSON.stringify(one));
  if (status === 403 && body?.permissions?.length) {
    const needed = body.permissions.join(', ');
    return new Refused(status, [`Your user may not do this. An administrator can grant a role that has ${needed}.`]);
  }
  if (Array.isArray(body)) return new Refused(status, body.map(text));
  if (body && typeof body === 'object') {
    const errors = body.errors && typeof body.errors === 'object' ? body.errors : {};
    const { _: general, ...fields } = errors;
    const texts = [body.message, body.reason ?? (typeof body.error === 'string' ? body.error : ''), general && text(general)];
    return new Refused(status, [...texts, ...Object.values(fields).map(text)], fields);
  }
  return new Refused(status, [String(body ?? '').trim()]);
}

/** Sends a request; resolves with what the body says. `form` is an object of parameters, `text` a body as it is. */
export async function ask(path, { method = 'GET', form, text, type, whole = false } = {}) {
  const headers = { Accept: 'application/json, text/plain, */*', 'ns-server-ui': 'yes' };
  let body;
  if (form) {
    const pairs = Object.entries(form).filter(([, value]) => value !== undefined);
    body = new URLSearchParams(pairs.flatMap(([name, value]) => [value].flat().map((one) => [name, String(one)])));
  } else if (text !== undefined) {
    body = text;
    headers['Content-Type'] = type ?? 'application/json';
  }
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, credentials: 'same-origin', cache: 'no-store' });
  } catch {
    isReachable.value = false;
    throw new Refused(0, ['The node does not answer. See whether it runs, and whether the network leads there.']);
  }
  isReachable.value = true;
  const isJson = (answer.headers.get('content-type') ?? '').includes('json');
  const said = await answer.text();
  let value = said;
  if (isJson && said) {
    try {
      value = JSON.parse(said);
    } catch {
      throw new Refused(answer.status, ['The node has sent an answer that is not JSON.']);
    }
  }
  if (answer.status === 401 && path !== '/whoami' && user.value) {
    user.value = null;
    remember(false);
    farewell.value = 'Your session has ended. Log in again.';
  }
  if (!answer.ok) throw refusal(answer.status, value);
  return whole ? { value, text: said, headers: answer.headers } : value;
}

/** A file that the node keeps, and its name. A link would not do: a session is good only with a header of the console. */
export async function fetched(path) {
  const answer = await fetch(path, { headers: { 'ns-server-ui': 'yes' }, credentials: 'same-origin', cache: 'no-store' }).catch(() => undefined);
  if (!answer) throw new Refused(0, ['The node does not answer. See whether it runs, and whether the network leads there.']);
  if (!answer.ok) throw refusal(answer.status, answer.status === 404 ? 'This node has no archive.' : await answer.text());
  const [, name] = /filename="([^"]+)"/.exec(answer.headers.get('content-disposition') ?? '') ?? [];
  return { blob: await answer.blob(), name };
}

export const post = (path, form = {}) => ask(path, { method: 'POST', form });
export const put = (path, form = {}) => ask(path, { method: 'PUT', form });
export const drop = (path) => ask(path, { method: 'DELETE' });
export const part = encodeURIComponent;

/** Whether this browser has logged in and not out: without that the node need not be asked who is here. */
const HINT = 'settee-session';
function remember(isIn) {
  try {
    if (isIn) localStorage.setItem(HINT, 'yes');
    else localStorage.removeItem(HINT);
  } catch {
    // A browser that keeps nothing asks for the password again.
  }
}
function mayBeIn() {
  try {
    // Under TLS a certificate may say who somebody is, without any log-in.
    return location.protocol === 'https:' || localStorage.getItem(HINT) === 'yes';
  } catch {
    return false;
  }
}

/** Finds out whether the node is set up and who is logged in. */
export async function identify() {
  try {
    isInitialised.value = (await ask('/health/ready').catch((error) => ({ initialized: error.status !== 0 }))).initialized !== false;
    user.value = isInitialised.value && mayBeIn() ? await ask('/whoami') : null;
  } catch (error) {
    user.value = null;
    remember(false);
    if (error.status !== 401) farewell.value = error.message;
  }
}

export async function logIn(name, password) {
  try {
    await post('/uilogin', { user: name, password });
  } catch (error) {
    throw error.status === 400 ? new Refused(400, ['User name or password is wrong.']) : error;
  }
  farewell.value = '';
  remember(true);
  user.value = await ask('/whoami');
}

export async function logOut() {
  try {
    await post('/uilogout');
    farewell.value = 'You have logged out.';
  } catch {
    farewell.value = 'The node does not know that you have logged out. Close the browser, or log in and out again.';
  }
  remember(false);
  user.value = null;
}
