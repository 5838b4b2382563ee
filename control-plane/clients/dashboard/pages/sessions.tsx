import { useState } from 'preact/hooks';
import { callerName } from '../../../subjects/audit/sentences.ts';
import { call, may, signedInAs } from '../api/client.ts';
import { callerDetails } from '../audit/events.tsx';
import { Badge } from '../parts/badge.tsx';
import { Confirm } from '../parts/dialogs.tsx';
import { Loaded, useAction, useLoad } from '../parts/loading.tsx';
import { usePages } from '../parts/paging.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';

/** The sessions that are open, each with a button that ends it. */
export function Sessions({ names }: { names: ReadonlyMap<string, string> }) {
  const pages = usePages(100);
  const sessions = useLoad(() => call('rootKeys.listSessions', { cursor: pages.cursor }), [pages.cursor]);
  const { run, problem } = useAction();
  const own = signedInAs().sessionId;
  const [endsOwn, setEndsOwn] = useState(false);
  const endSession = (sessionId = own) => call('rootKeys.endSession', { sessionId });
  const end = async (sessionId: string) => {
    if (sessionId === own) return setEndsOwn(true);
    await endSession(sessionId);
    sessions.reload();
  };
  return (
    <>
      <h2>Signed in</h2>
      {problem}
      {endsOwn && (
        <Confirm
          title="End the session of this browser?"
          action="End it"
          busyText="Ending…"
          run={endSession}
          // It has no session now, and asks to sign in.
          onDone={() => location.reload()}
          onClose={() => setEndsOwn(false)}
        >
          You are signed out here.
        </Confirm>
      )}
      <Loaded of={sessions}>
        {(page) => (
          <>
            <Table
              label="Sessions"
              rows={page.sessions}
              id={({ sessionId }) => sessionId}
              empty="Nobody."
              columns={[
                {
                  title: 'Who',
                  narrow: 'first',
                  cell: (session) => (
                    <>
                      <bdi title={callerDetails(session)}>{callerName(session, names)}</bdi>{' '}
                      {session.sessionId === own && <Badge kind="good">this browser</Badge>}
                    </>
                  ),
                },
                { title: 'From', cell: ({ address }) => <code>{address}</code> },
                { title: 'Since', cell: ({ createdAt }) => <Time at={createdAt} /> },
                {
                  title: 'Actions',
                  narrow: 'menu',
                  cell: ({ sessionId, address, ...beginner }) =>
                    may('root.*.update_root_key') && (
                      <button
                        type="button"
                        class="small"
                        aria-label={`End the session of ${callerName(beginner, names)} from ${address}`}
                        onClick={() => void run(() => end(sessionId))}
                      >
                        End
                      </button>
                    ),
                },
              ]}
            />
            {pages.pager(page.cursor, page.sessions.length)}
          </>
        )}
      </Loaded>
    </>
  );
}
