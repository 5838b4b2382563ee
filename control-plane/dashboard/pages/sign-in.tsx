import { signIn, signInProvider } from '../api/client.ts';
import { fieldsOf } from '../forms/forms.tsx';
import { useAction } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';

/** A page that leads to the identity provider, if there is one, and asks for a root key. */
export function SignIn({ reason, signOutUrl }: { reason: string; signOutUrl: string | undefined }) {
  const provider = signInProvider();
  const { busy, run, problem } = useAction();
  const submit = (event: Event) => {
    const field = fieldsOf(event);
    void run(() => signIn(field('rootKey')));
  };
  return (
    <Page title="Sign in">
      <form class="panel sign-in" onSubmit={submit}>
        {reason && <p role="alert">{reason}</p>}
        {provider && signOutUrl && (
          <p>
            You are still signed in at {provider}. <a href={signOutUrl}>Sign out there, too</a>
          </p>
        )}
        {provider && (
          <a class="main" href="session/oidc/begin">
            Sign in with {provider}
          </a>
        )}
        <label>
          Root key
          <input name="rootKey" type="password" required autocomplete="off" spellcheck={false} />
        </label>
        {problem}
        <button type="submit" class="main" aria-disabled={busy}>
          Sign in
        </button>
        <p class="quiet">
          The server exchanges it for a session, which ends after 30 minutes without use, and after 12 hours.
          This browser keeps no root key. <code>npm start</code> shows the one it made. Everything here can be
          done by programs, too: <a href="/docs">the reference</a>.
        </p>
      </form>
    </Page>
  );
}
