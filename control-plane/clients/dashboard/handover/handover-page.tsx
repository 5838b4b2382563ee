import { useState } from 'preact/hooks';
import { Failure } from '../api/client.ts';
import { canEncrypt, openLink } from '../api/one-time-links.ts';
import { SecretDialog } from '../parts/dialogs.tsx';
import { useAction } from '../parts/loading.tsx';
import { Page } from '../parts/page.tsx';

/** The page of a link that shows a secret once, for somebody who need not be signed in. */
export function Handover({ part }: { part: string }) {
  const { busy, run, problem } = useAction();
  const [secret, setSecret] = useState<string>();
  const [isStored, setStored] = useState(false);
  const [isUsed, setUsed] = useState(false);
  const open = async () => {
    try {
      setSecret(await openLink(part));
    } catch (error) {
      setUsed(error instanceof Failure && error.code === 'NOT_FOUND');
      throw error;
    }
  };
  return (
    <div class="sign-in">
      <Page title="A secret for you">
        <div class="panel again">
          {isStored ? (
            <p>The link shows nothing any more. You can close this page.</p>
          ) : (
            <>
              <p>
                Somebody gives you the secret of an API key. It is shown once, and the link is used up then;
                so show it when you can store it.
              </p>
              {problem}
              {canEncrypt() ? (
                !isUsed && (
                  <button type="button" class="main" aria-disabled={busy} onClick={() => void run(open)}>
                    Show the secret
                  </button>
                )
              ) : (
                <p role="alert">
                  This page must be opened over HTTPS, because the browser decrypts the secret.
                </p>
              )}
            </>
          )}
        </div>
        {secret !== undefined && (
          <SecretDialog
            title="Your secret"
            secret={secret}
            onClose={() => {
              setSecret(undefined);
              setStored(true);
            }}
          />
        )}
      </Page>
    </div>
  );
}
