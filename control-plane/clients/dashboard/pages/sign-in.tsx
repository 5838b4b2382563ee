import { useEffect } from 'preact/hooks';
import { resume, signIn, signInProvider } from '../api/client.ts';
import { fieldsOf } from '../forms/forms.tsx';
import { useAction } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';

/** A page that leads to the identity provider, if there is one, and asks for a root key. */
export function SignIn({ signOutUrl }: { signOutUrl: string | undefined }) {
  const provider = signInProvider();
  return (
    <div class="sign-in">
      <Page title="Sign in">
        {provider && signOutUrl && (
          <p>
            You are still signed in at {provider}. <a href={signOutUrl}>Sign out there, too</a>
          </p>
        )}
        <SignInForm />
      </Page>
    </div>
  );
}

/** @param props.hasPage true over a page that keeps what was entered, which must not be left */
export function SignInForm({ reason, hasPage = false }: { reason?: string; hasPage?: boolean }) {
  const provider = signInProvider();
  const { busy, run, problem } = useAction();
  useEffect(() => {
    if (!hasPage) return;
    const back = () => void resume();
    addEventListener('focus', back);
    return () => removeEventListener('focus', back);
  }, []);
  const submit = (event: Event) => {
    const field = fieldsOf(event);
    void run(() => signIn(field('rootKey')));
  };
  return (
    <form class={hasPage ? 'again' : 'panel again'} onSubmit={submit}>
      {reason && <p role="alert">{reason}</p>}
      {provider && (
        <a class="main" href="session/oidc/begin" {...(hasPage ? { target: '_blank' } : {})}>
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
        {hasPage
          ? 'What you entered is kept on this page.'
          : 'The session ends after 30 minutes without use, and after 12 hours. This browser keeps no root key.'}
        {!hasPage && /^(localhost|127\.)/.test(location.hostname) && (
          <>
            {' '}
            <code>npm start</code> shows the one it made.
          </>
        )}
      </p>
    </form>
  );
}
