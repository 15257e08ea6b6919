// Paths into documents, as sub-document operations of clients have them: `tracks[0].title`, and `` `a.b` `` for a name with a dot in it.

/** The steps of a path; throws what is wrong with it. */
export function steps(path) {
  const found = [];
  let rest = path;
  while (rest) {
    const [whole, quoted, name, index] = /^(?:`((?:[^`]|``)+)`|([^.[\]`]+)|\[(-1|\d+)\])/.exec(rest) ?? [];
    if (whole === undefined) throw new Error(`The path is wrong at “${rest}”.`);
    found.push(index === undefined ? (quoted?.replaceAll('``', '`') ?? name) : Number(index));
    rest = rest.slice(whole.length);
    if (rest.startsWith('.')) {
      rest = rest.slice(1);
      if (!rest) throw new Error('The path ends with a dot.');
    } else if (rest && !rest.startsWith('[')) throw new Error(`The path is wrong at “${rest}”.`);
  }
  return found;
}

const own = (value, step) => {
  if (Array.isArray(value) && typeof step === 'number') return step < 0 ? value.length - 1 : step;
  if (value && typeof value === 'object' && !Array.isArray(value) && typeof step === 'string') return step;
  return undefined;
};

/** What is at a path; `undefined` where there is nothing. */
export function at(value, path) {
  return steps(path).reduce((inner, step) => {
    const key = own(inner, step);
    return key !== undefined && Object.hasOwn(inner, key) ? inner[key] : undefined;
  }, value);
}

/** The document with another value at a path. A member may be new; everything before it has to be there. */
export function put(value, path, part) {
  const [step, ...rest] = typeof path === 'string' ? steps(path) : path;
  if (step === undefined) return part;
  const key = own(value, step);
  const isThere = key !== undefined && Object.hasOwn(value, key);
  if (key === undefined || (!isThere && (rest.length || typeof key === 'number'))) throw new Error('There is nothing at this path.');
  const inner = put(isThere ? value[key] : undefined, rest, part);
  if (Array.isArray(value)) return value.map((one, index) => (index === key ? inner : one));
  return Object.fromEntries([...Object.entries(value).filter(([name]) => name !== key || isThere).map(([name, one]) => [name, name === key ? inner : one]), ...(isThere ? [] : [[key, inner]])]);
}
