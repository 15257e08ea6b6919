// The console: who may see it, where its pages are, and what is around them.
import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import 'uplot/dist/uPlot.min.css';
import './style.css';
import { identify, isInitialised, isReachable, logOut, user } from './api.js';
import { Enter } from './enter.jsx';
import { Notes } from './parts.jsx';
import { pages } from './pages.js';
import { route, to } from './route.js';
import { theme, turn } from './theme.js';

const Mark = () => <img src="icon-1.svg" alt="" width="28" height="28" />;

function Top() {
  const other = theme.value === 'dark' ? 'light' : 'dark';
  return (
    <header class="top">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.querySelector('main').focus(); }}>Skip to the page</a>
      <a class="brand" href={to()}><Mark />Settee</a>
      <div class="buttons">
        <span class="who">{user.value.id}</span>
        <button type="button" class="plain" onClick={turn}>{other === 'dark' ? 'Dark' : 'Light'}</button>
        <button type="button" class="plain" onClick={logOut}>Log out</button>
      </div>
    </header>
  );
}

function Console() {
  const [name = '', ...rest] = route.value;
  const page = pages.find((one) => one.path === name) ?? pages[0];
  useEffect(() => {
    window.scrollTo(0, 0);
  }, [route.value.join('/')]);
  return (
    <>
      <Top />
      <nav aria-label="Pages">
        {pages.map(({ path, title }) => (
          <a key={path} href={path ? to(path) : to()} aria-current={page.path === path ? 'page' : undefined}>{title}</a>
        ))}
      </nav>
      <main id="main" tabIndex={-1}>
        {isReachable.value ? null : <p class="banner" role="alert">The node does not answer. What you see is what it said last. The console goes on asking.</p>}
        <page.Show path={rest} />
      </main>
    </>
  );
}

function App() {
  useEffect(() => {
    identify();
  }, []);
  let shown = null;
  if (user.value) shown = <Console />;
  else if (user.value === null) shown = <Enter isNew={!isInitialised.value} />;
  return <>{shown}<Notes /></>;
}

render(<App />, document.getElementById('app'));
