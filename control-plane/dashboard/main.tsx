import './style.css';
import { render } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { events, isSignedIn, signIn, signOut } from './api.ts';
import { Apis } from './apis.tsx';
import { Audit } from './audit.tsx';
import { Fleet } from './fleet.tsx';
import { KeyDetail } from './key.tsx';
import { Keys } from './keys.tsx';
import { useAction } from './loading.tsx';
import { Overview } from './overview.tsx';
import { fieldsOf, Page, partsOf } from './parts.tsx';
import { RootKeys } from './root-keys.tsx';

const SECTIONS = [
  ['#/', 'Overview'],
  ['#/apis', 'APIs'],
  ['#/root-keys', 'Root keys'],
  ['#/fleet', 'Fleet'],
  ['#/audit', 'Audit'],
] as const;

function App() {
  const [signedIn, setSignedIn] = useState(isSignedIn());
  const [ended, setEnded] = useState('');
  const [lost, setLost] = useState(false);
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const session = (event: Event) => {
      setSignedIn(isSignedIn());
      setEnded((event as CustomEvent<string>).detail);
    };
    events.addEventListener('session', session);
    events.addEventListener('lost', () => setLost(true));
    events.addEventListener('reached', () => setLost(false));
    addEventListener('hashchange', () => setHash(location.hash));
  }, []);
  const [path] = partsOf(hash);
  const [, section = '', id = ''] = path.split('/');
  const current = section === 'apis' || section === 'keys' ? '#/apis' : `#/${section}`;
  return (
    <>
      <header>
        <a class="brand" href="#/">
          Keyfence
        </a>
        {signedIn && (
          <nav aria-label="Sections">
            {SECTIONS.map(([target, name]) => (
              <a key={target} href={target} {...(target === current ? { 'aria-current': 'page' } : {})}>
                {name}
              </a>
            ))}
            <a href="/docs">Reference</a>
            <button type="button" class="sign-out" onClick={() => signOut()}>
              Sign out
            </button>
          </nav>
        )}
      </header>
      <div class="lost" role="alert">
        {lost && 'Connection to the control plane lost. What is shown may be old.'}
      </div>
      <main key={`${signedIn}${hash}`}>{signedIn ? view(section, id) : <SignIn why={ended} />}</main>
    </>
  );
}

function view(section: string, id: string) {
  switch (section) {
    case '':
      return <Overview />;
    case 'apis':
      return id === '' ? <Apis /> : <Keys apiId={id} />;
    case 'keys':
      return <KeyDetail keyId={id} />;
    case 'root-keys':
      return <RootKeys />;
    case 'fleet':
      return <Fleet />;
    case 'audit':
      return <Audit keyId={id} />;
    default:
      return (
        <Page title="No such page">
          <a href="#/">To the overview</a>
        </Page>
      );
  }
}

function SignIn({ why }: { why: string }) {
  const { busy, run, problem } = useAction();
  const submit = (event: Event) => {
    const field = fieldsOf(event);
    void run(() => signIn(field('rootKey'), field('keep') === 'on'));
  };
  return (
    <Page title="Sign in">
      <form class="panel sign-in" onSubmit={submit}>
        {why && <p role="alert">{why}</p>}
        <label>
          Root key
          <input name="rootKey" type="password" required autocomplete="off" spellcheck={false} />
        </label>
        <label class="check">
          <input type="checkbox" name="keep" /> Stay signed in until this tab is closed
        </label>
        {problem}
        <button type="submit" class="main" aria-disabled={busy}>
          Sign in
        </button>
        <p class="quiet">
          It stays in this page’s memory, and is sent to the API of this server only. <code>npm start</code>{' '}
          shows the one it made. Everything here can be done by programs, too:{' '}
          <a href="/docs">the reference</a>.
        </p>
      </form>
    </Page>
  );
}

const root = document.getElementById('app');
if (root) render(<App />, root);
