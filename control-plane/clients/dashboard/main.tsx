import './style/style.css';
import { render } from 'preact';
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import { callerName } from '../../subjects/audit/sentences.ts';
import {
  events,
  type Failure,
  isSignedIn,
  may,
  resume,
  signedInAs,
  signOut,
  watchConnection,
} from './api/client.ts';
import { callerDetails, useNames } from './audit/events.tsx';
import type { Call } from './changes/commands.ts';
import { CopyAs } from './changes/copy-as.tsx';
import { useHash } from './forms/unsaved.tsx';
import { Handover } from './handover/handover-page.tsx';
import { Apis } from './pages/apis.tsx';
import { Audit } from './pages/audit.tsx';
import { Finder, useFinder } from './pages/finder.tsx';
import { Fleet } from './pages/fleet.tsx';
import { Identities } from './pages/identities.tsx';
import { IdentityDetail } from './pages/identity.tsx';
import { KeyDetail } from './pages/key.tsx';
import { Keys } from './pages/keys.tsx';
import { Overview } from './pages/overview.tsx';
import { Roles } from './pages/roles.tsx';
import { RootKeys } from './pages/root-keys.tsx';
import { SignIn, SignInForm } from './pages/sign-in.tsx';
import { WebhookDetail } from './pages/webhook.tsx';
import { Webhooks } from './pages/webhooks.tsx';
import { NamesOfApis, useApiNames } from './parts/api-name.tsx';
import { partsOf } from './parts/conditions.ts';
import { Dialog } from './parts/dialogs.tsx';
import { Icon } from './parts/icon.tsx';
import { Problem } from './parts/loading.tsx';
import { Page } from './parts/page.tsx';
import { useShortcuts } from './parts/shortcuts.tsx';
import { followTheme, ThemeChoice } from './parts/theme.tsx';

/** The sections in their groups, each with the permission without which it would be empty, and its icon. */
const SECTIONS = [
  ['#/', 'Overview', '', '', 'overview'],
  ['#/apis', 'APIs', 'Access', '', 'apis'],
  ['#/identities', 'Customers', 'Access', 'root.*.read_identity', 'customers'],
  ['#/roles', 'Plans & roles', 'Access', 'root.*.read_role', 'roles'],
  ['#/webhooks', 'Webhooks', 'Operate', 'root.*.read_webhook', 'webhooks'],
  ['#/fleet', 'Fleet', 'Operate', 'root.*.read_fleet', 'fleet'],
  ['#/audit', 'Audit', 'Operate', 'root.*.read_audit', 'audit'],
  ['#/root-keys', 'Root keys', 'Admin', 'root.*.read_root_key', 'rootKeys'],
] as const;

const permittedSections = () => SECTIONS.filter(([, , , permission]) => permission === '' || may(permission));

const RESUME_MS = 2000;

/** @param props.failure the reason why it is not known whether there is a session */
function App(props: { failure: Failure | undefined }) {
  // Of who signed in last here; stays while the session is over, so that the page keeps what was entered.
  const [caller, setCaller] = useState(isSignedIn() ? signedInAs() : undefined);
  const [endReason, setEndReason] = useState('');
  const [signOutUrl, setSignOutUrl] = useState<string>();
  const [failure, setFailure] = useState(props.failure);
  useEffect(() => {
    if (!failure) return;
    const timer = setTimeout(() => void resume().then(setFailure), RESUME_MS);
    return () => clearTimeout(timer);
  }, [failure]);
  const [isOffline, setOffline] = useState(false);
  const { hash, question } = useHash();
  useEffect(() => {
    const session = (event: Event) => {
      const { detail } = event as CustomEvent<string>;
      setEndReason(detail);
      if (isSignedIn()) setCaller(signedInAs());
      else if (detail === '') setCaller(undefined);
    };
    events.addEventListener('session', session);
    events.addEventListener('lost', () => setOffline(true));
    events.addEventListener('reached', () => setOffline(false));
    watchConnection();
  }, []);
  useLayoutEffect(() => {
    document.getElementById('app')?.classList.toggle('signed-in', caller !== undefined);
  }, [caller]);
  const apiNames = useApiNames(caller !== undefined);
  const finder = useFinder(caller !== undefined && endReason === '');
  const shortcuts = useShortcuts(caller !== undefined && endReason === '', finder.open);
  const [path] = partsOf(hash);
  const [, section = '', id = ''] = path.split('/');
  const current = section === 'apis' || section === 'keys' ? '#/apis' : `#/${section}`;
  return (
    <>
      <Header
        caller={caller}
        current={current}
        onFind={finder.open}
        onShortcuts={shortcuts.show}
        onSignOut={setSignOutUrl}
      />
      <div class="lost" role="alert">
        {isOffline && 'Connection to the control plane lost. What is shown may be out of date.'}
      </div>
      {question}
      {shortcuts.dialog}
      {finder.start !== undefined && (
        <Finder
          start={finder.start}
          sections={permittedSections().map(([target, name]) => [target, name] as const)}
          onClose={finder.close}
        />
      )}
      {endReason !== '' && (
        <Dialog title="Sign in again" onClose={() => undefined} mustAnswer isOpaque>
          <SignInForm reason={endReason} hasPage />
        </Dialog>
      )}
      <NamesOfApis value={apiNames}>
        <main key={`${caller && idOf(caller)}${hash}`}>
          {section === 'handover' ? (
            <Handover part={id} />
          ) : caller ? (
            view(section, id)
          ) : failure ? (
            <Page title="Not available right now">
              <Problem failure={failure} retry="by itself" />
              <p class="quiet">If you were signed in, your session is kept.</p>
            </Page>
          ) : (
            <SignIn signOutUrl={signOutUrl} />
          )}
        </main>
      </NamesOfApis>
    </>
  );
}

type SignedIn = ReturnType<typeof signedInAs>;
const idOf = ({ rootKeyId, person }: SignedIn) => rootKeyId ?? person?.personId;

/** The sections, and who is signed in, at the side of the page. */
function Header(props: {
  caller: SignedIn | undefined;
  current: string;
  onFind: () => void;
  onShortcuts: () => void;
  onSignOut: (signOutUrl: string | undefined) => void;
}) {
  const { caller, current, onFind, onShortcuts, onSignOut } = props;
  const [lastCall, setLastCall] = useState<Call>();
  useEffect(() => {
    events.addEventListener('changed', (event) => setLastCall((event as CustomEvent<Call>).detail));
  }, []);
  useEffect(() => {
    // On a phone the sections are one row, which may have been moved.
    document
      .querySelector('header nav [aria-current]')
      ?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  }, [current]);
  return (
    <header>
      {caller && (
        <button type="button" class="skip" onClick={() => document.querySelector('h1')?.focus()}>
          To the page
        </button>
      )}
      <a class="brand" href="#/">
        <img src="./icon.svg" alt="" /> <span class="label">Keyfence</span>
      </a>
      {caller && (
        <>
          <button type="button" class="find" onClick={onFind} aria-keyshortcuts="Control+K Meta+K">
            <Icon of="find" /> <span class="label">Find</span> <kbd>⌘K</kbd>
          </button>
          <nav aria-label="Sections">
            {permittedSections().map(([target, name, group, , icon], i, all) => (
              <>
                {group !== all[i - 1]?.[2] && group !== '' && <span class="group-name">{group}</span>}
                <a
                  key={target}
                  href={target}
                  title={name}
                  {...(target === current ? { 'aria-current': 'page' } : {})}
                >
                  <Icon of={icon} /> <span class="label">{name}</span>
                </a>
              </>
            ))}
            <a href="/docs" title="Reference">
              <Icon of="reference" /> <span class="label">Reference</span>
            </a>
          </nav>
          {lastCall && (
            <div class="last-call">
              <CopyAs call={lastCall} />
            </div>
          )}
          <div class="who">
            <SignedInAs caller={caller} />
            <ThemeChoice />
            <button type="button" class="small shortcuts" onClick={onShortcuts} aria-keyshortcuts="?">
              Shortcuts <kbd>?</kbd>
            </button>
            <button type="button" class="small sign-out" onClick={() => void signOut().then(onSignOut)}>
              <Icon of="signOut" /> <span class="label">Sign out</span>
            </button>
          </div>
        </>
      )}
    </header>
  );
}

function SignedInAs({ caller }: { caller: SignedIn }) {
  return (
    <span>
      Signed in as <bdi title={callerDetails(caller)}>{callerName(caller, useNames())}</bdi>
    </span>
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
    case 'identities':
      return id === '' ? <Identities /> : <IdentityDetail idOrExternalId={decodePart(id)} />;
    case 'roles':
      return <Roles />;
    case 'root-keys':
      return <RootKeys />;
    case 'webhooks':
      return id === '' ? <Webhooks /> : <WebhookDetail endpointId={id} />;
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

/** Decodes a part of an address; returns it unchanged if it is malformed. */
function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

followTheme();
const root = document.getElementById('app');
if (root) void resume().then((failure) => render(<App failure={failure} />, root));
