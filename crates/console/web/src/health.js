// What an operator has to know at once. Pure: answers of REST go in, and findings come out.
import { bytes, count, duration, last, moment, percent } from './format.js';

/** Latest figure of a statistic of a bucket. */
const now = (samples, name) => last(samples?.[name]) ?? 0;

function ofNodes(pool) {
  const found = [];
  for (const node of pool.nodes) {
    const name = node.hostname;
    if (node.clusterMembership === 'inactiveFailed') {
      found.push({ level: 'bad', text: `${name} was failed over.`, advice: 'Recover it or remove it on the page Servers.', page: 'servers' });
    } else if (node.status === 'unhealthy') {
      const age = node.settee?.figuresAgeSecs;
      const since = age === undefined ? '' : `What it said last is ${duration(age)} old. `;
      found.push({ level: 'bad', text: `${name} does not answer.`, advice: `${since}See whether its process runs and its network works. Fail it over where it stays away.`, page: 'servers' });
    } else if (node.clusterMembership === 'inactiveAdded') {
      found.push({ level: 'warn', text: `${name} was added and holds no data yet.`, advice: 'Rebalance on the page Servers.', page: 'servers' });
    } else if (node.status === 'warmup') {
      found.push({ level: 'warn', text: `${name} is loading its buckets.`, advice: 'Documents that are not in memory yet are read from disk meanwhile.', page: 'servers' });
    }
  }
  return found;
}

/** What follows from a bucket's memory being above its high watermark. */
const ABOVE = {
  noEviction: 'Nothing leaves memory, and at the quota writes are refused. Raise the quota, or delete documents.',
  nruEviction: 'Documents that were not used of late are deleted. Raise the quota to keep them.',
};

function ofBucket({ name, evictionPolicy }, samples) {
  const found = [];
  const say = (level, text, advice) => found.push({ level, text: `${name}: ${text}`, advice, page: 'buckets', name });
  if (now(samples, 'settee_refused_disk_broken') > 0) say('bad', 'the disk does not take documents.', 'Read the log of the node and replace the disk. Fail the node over meanwhile.');
  if (now(samples, 'settee_disk_low') > 0) say('bad', 'the disk is full. Only deletions are accepted.', 'Give the node more disk, or delete documents.');
  const cutOff = now(samples, 'settee_replicas_cut_off');
  if (cutOff > 0) say('bad', `${count(cutOff)} replicas are not kept up to date.`, 'See whether the nodes reach one another on their data ports.');
  if (now(samples, 'ep_oom_errors') > 0) say('bad', 'writes are refused for lack of memory.', 'Raise the quota, or add a node and rebalance.');
  const used = now(samples, 'mem_used');
  const high = now(samples, 'ep_mem_high_wat');
  if (high > 0 && used > high) say('warn', `memory is above its high watermark (${bytes(used)} of ${bytes(high)}).`, ABOVE[evictionPolicy] ?? 'Values leave memory. Raise the quota if reads get slow.');
  if (now(samples, 'settee_paced_waiting') > 0) say('warn', 'writes wait, because the disk or a replica is slower than they come.', 'See the disk queue and replication of the bucket.');
  if (now(samples, 'ep_cache_miss_rate') > 10) say('warn', `${percent(now(samples, 'ep_cache_miss_rate'))} of the reads go to disk.`, 'Raise the quota, so that more of the documents stay in memory.');
  return found;
}

/** Percentiles of an operation within the last minute, as `/settee/latency` tells them; nothing where there was no request. */
export function lastMinute(told, operation) {
  const all = told?.operations?.[operation]?.all;
  return all?.count > 0 ? { p50: all.p50Us, p99: all.p99Us } : undefined;
}

/** Alerts that fire on any node. Nodes that are not heard of are found by themselves. */
function ofAlerts(firing) {
  return firing.filter(({ name }) => name !== 'node_down').map(({ name, level, text, since }) => (
    { level: level === 'critical' ? 'bad' : 'warn', text, advice: `Since ${moment(Date.parse(since))}. The page Alerts says what to do about ${name}.`, page: 'alerts' }
  ));
}

/** What the node that answers says, where the reader may not see the alerts of all. */
const ofPool = (alerts) => alerts.map((one) => ({ level: 'warn', text: typeof one === 'string' ? one : one.msg, advice: '', page: 'servers' }));

/**
 * Everything that is wrong, worst first. `samples`: the statistics of each bucket, by its name. `firing`: alerts of all nodes, if the
 * reader may see them.
 */
export function findings(pool, buckets, samples, firing) {
  const found = [...ofNodes(pool)];
  if (pool.rebalanceStatus === 'running') {
    found.push({ level: 'info', text: 'A rebalance is running.', advice: 'The page Servers says how far it is.', page: 'servers' });
  } else if (!pool.balanced && !found.some((one) => one.page === 'servers')) {
    found.push({ level: 'warn', text: 'Data is not spread as it should be.', advice: 'Rebalance on the page Servers.', page: 'servers' });
  }
  found.push(...(firing ? ofAlerts(firing) : ofPool(pool.alerts ?? [])));
  for (const bucket of buckets) found.push(...ofBucket(bucket, samples[bucket.name]));
  if (pool.nodes.length > 1) {
    const bare = buckets.filter((bucket) => bucket.replicaNumber === 0).map((bucket) => bucket.name);
    if (bare.length) found.push({ level: 'info', text: `No replicas: ${bare.join(', ')}.`, advice: 'A node that is lost takes their documents with it.', page: 'buckets' });
  }
  const order = { bad: 0, warn: 1, info: 2 };
  return found.sort((a, b) => order[a.level] - order[b.level]);
}

const NAMES = {
  memory: ({ bucket }) => `Memory of ${bucket}`,
  metadata: ({ bucket }) => `Keys and metadata of ${bucket}`,
  disk: ({ node }) => `Disk of ${node}`,
  objective: ({ bucket, objective }) => `Error budget of ${bucket}/${objective}`,
};

/** How soon a limit is reached: what forecasts are sorted by. */
const soon = (one) => (one.outlook === 'reached' ? 0 : one.outlook === 'dated' ? Date.parse(one.likely) : one.outlook === 'notInSight' ? Infinity : Number.MAX_VALUE);

/** The forecasts to show: of the nodes of a cluster, the one whose limit is reached first. */
export function foretold(forecasts) {
  const first = new Map();
  for (const one of forecasts) {
    const key = NAMES[one.what]?.(one);
    if (key && !(first.has(key) && soon(first.get(key)) <= soon(one))) first.set(key, one);
  }
  return [...first].map(([name, one]) => ({ name, one }));
}

/** A forecast in words. */
export function inWords(one, now = Date.now()) {
  const on = one.node && one.bucket ? ` on ${one.node}` : '';
  const after = (moment) => duration(Math.max(0, (Date.parse(moment) - now) / 1000));
  switch (one.outlook) {
    case 'reached': return { text: `reached${on}`, isNear: true };
    case 'dated': {
      const early = one.early && Date.parse(one.early) < Date.parse(one.likely) ? `, maybe in ${after(one.early)}` : '';
      return { text: `in ${after(one.likely)}${on}${early}`, isNear: Date.parse(one.likely) - now < 14 * 86400 * 1000 };
    }
    case 'notInSight': return { text: 'not in sight' };
    default: return { text: 'not enough data', isUnknown: true };
  }
}

/** How far past forecasts of a figure were off, a day ahead and a week. */
export const pastError = (one) => one?.pastForecasts?.map(({ percent: off }) => percent(off)).join(', ') || '–';

/** The slope of figures per millisecond: the median of slopes between pairs, which a few odd figures do not change. */
export function slope(times, values) {
  const step = Math.max(1, Math.floor(times.length / 40));
  const at = times.map((_, index) => index).filter((index) => index % step === 0 && Number.isFinite(values[index]));
  const slopes = [];
  for (const a of at) {
    for (const b of at) {
      if (times[b] > times[a]) slopes.push((values[b] - values[a]) / (times[b] - times[a]));
    }
  }
  slopes.sort((a, b) => a - b);
  return slopes.length ? slopes[Math.floor(slopes.length / 2)] : 0;
}

/** Least time of figures that says anything about the future. */
const PAST_MS = 10 * 60 * 1000;

/** When what grows reaches its limit, in words. `used`: how much that is now, which may be later than the last of the values. */
export function outlook(times, values, used, limit) {
  if (!(limit > 0) || !Number.isFinite(used)) return { text: 'not known' };
  if (used >= limit) return { text: 'reached', isNear: true };
  if (times.length < 5 || last(times) - times[0] < PAST_MS) return { text: 'too early to say: the node has run for less than ten minutes' };
  const per = slope(times, values);
  const left = (limit - used) / per / 1000;
  if (per <= 0 || left > 365 * 86400) return { text: 'not in sight' };
  return { text: `in ${duration(left)} at the pace of the last ${duration((last(times) - times[0]) / 1000)}`, isNear: left < 7 * 86400 };
}

/** What the last hour says of a bucket's memory, on all nodes together, where there is no longer past. */
function lastHour({ bucket }, samples, past) {
  const [used, limit] = [last(samples[bucket]?.mem_used), now(samples[bucket], 'ep_mem_high_wat')];
  return { used, limit, when: outlook(past.samples[bucket]?.timestamp ?? [], past.samples[bucket]?.mem_used ?? [], used, limit) };
}

/** What is limited, how much of it is used, and when the limit is reached. */
export function resources(pool, samples, past) {
  const { ram } = pool.storageTotals;
  const given = { name: 'Memory given to buckets', used: ram.quotaUsed, limit: ram.quotaTotal, when: { text: 'changes when buckets do' } };
  const limits = foretold(past?.forecasts ?? []).map(({ name, one }) => {
    const when = inWords(one);
    const seen = when.isUnknown && one.what === 'memory' ? lastHour(one, samples, past) : { used: one.value, limit: one.limit, when };
    return { name, one, ...seen };
  });
  return [...limits, given];
}

const OUTSIDE = { sdk: 'as clients see it', probe: 'as probes see it' };
const isMissed = (seen) => seen?.state === 'burning' || seen?.state === 'exhausted';

/** Which objectives of latency are missed, in words: by the nodes' own figures, or only by those of clients or probes. */
export function missed(objectives) {
  const name = (one, how = '') => `${one.name} of ${one.bucket}${how}`;
  const who = (one) => Object.keys(OUTSIDE).find((source) => isMissed(one.seenFromOutside?.[source]));
  const inside = objectives.filter(isMissed).map((one) => name(one));
  const outside = objectives.filter((one) => !isMissed(one) && who(one)).map((one) => name(one, ` (${OUTSIDE[who(one)]})`));
  return [...inside, ...outside].join(', ');
}
