// Paths into documents: what they name, what is changed by them, and what is no path.
import assert from 'node:assert/strict';
import test from 'node:test';
import { at, put, steps } from './path.js';

test('a path is read into its steps', () => {
  for (const [path, expected] of [
    ['', []],
    ['a', ['a']],
    ['a.b.c', ['a', 'b', 'c']],
    ['tracks[0].title', ['tracks', 0, 'title']],
    ['[2][-1]', [2, -1]],
    ['`a.b`.c', ['a.b', 'c']],
    ['a.`[0]`', ['a', '[0]']],
    ['`a``b`', ['a`b']],
    ['a b.ü', ['a b', 'ü']],
    ['0', ['0']],
  ]) assert.deepEqual(steps(path), expected, path);
});

test('what is no path says where it goes wrong', () => {
  for (const [path, told] of [
    ['.a', /wrong at “\.a”/],
    ['a..b', /wrong at “\.b”/],
    ['a.', /ends with a dot/],
    ['a[', /wrong at “\[”/],
    ['a[x]', /wrong at “\[x\]”/],
    ['a[-2]', /wrong at “\[-2\]”/],
    ['a[0]b', /wrong at “b”/],
    ['a]', /wrong at “\]”/],
    ['`a', /wrong at “`a”/],
    ['``', /wrong at “``”/],
    ['`a`b', /wrong at “b”/],
  ]) assert.throws(() => steps(path), told, path);
});

const album = () => ({ title: 'Blue', tracks: [{ name: 'Carey' }, { name: 'River' }], 'a.b': 1, none: null });

test('what is at a path is found, and nothing else', () => {
  for (const [path, expected] of [
    ['title', 'Blue'],
    ['tracks[1].name', 'River'],
    ['tracks[-1].name', 'River'],
    ['`a.b`', 1],
    ['none', null],
    ['', album()],
  ]) assert.deepEqual(at(album(), path), expected, path);
  for (const path of ['a.b', 'tracks[2]', 'tracks.name', 'tracks.length', 'title[0]', 'title.length', 'none.x', 'none[0]', 'toString', '__proto__', 'constructor.name', '[0]']) {
    assert.equal(at(album(), path), undefined, path);
  }
  assert.equal(at([], '[-1]'), undefined);
});

test('a value is put at its path, and all else stays as it was and in its order', () => {
  const before = album();
  assert.deepEqual(put(before, 'tracks[-1].name', 'A Case of You').tracks, [{ name: 'Carey' }, { name: 'A Case of You' }]);
  assert.deepEqual(put(before, 'tracks[0].length', 180).tracks[0], { name: 'Carey', length: 180 });
  assert.deepEqual(Object.keys(put(before, 'tracks', [])), ['title', 'tracks', 'a.b', 'none']);
  assert.deepEqual(Object.keys(put(before, 'year', 1971)), ['title', 'tracks', 'a.b', 'none', 'year']);
  assert.equal(put(before, '', 5), 5);
  assert.deepEqual(put(before, '`a.b`', [1])['a.b'], [1]);
  assert.deepEqual(before, album(), 'the document itself is not changed');
});

test('a value is put nowhere where there is nothing to hold it', () => {
  for (const path of ['tracks[2]', 'tracks[2].name', 'no.name', 'title.x', 'none.x', 'none[0]', 'tracks.name', '[0]']) {
    assert.throws(() => put(album(), path, 1), /nothing at this path/, path);
  }
  assert.throws(() => put([], '[-1]', 1), /nothing at this path/);
});

test('a name that objects inherit is a name like any other', () => {
  for (const name of ['toString', 'constructor', '__proto__']) {
    const changed = put({ a: 1 }, name, 2);
    assert.deepEqual(Object.entries(changed), [['a', 1], [name, 2]], name);
    assert.equal(at(changed, name), 2);
    assert.equal({}.polluted, undefined);
    assert.equal(JSON.stringify(changed), `{"a":1,"${name}":2}`);
  }
});
