import { call, may } from '../api/client.ts';
import { Loaded, useAction, useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';

/** The sessions that are open, each with a button that ends it. */
export function Sessions({ names }: { names: ReadonlyMap<string, string> }) {
  const sessions = useLoad(() => call('rootKeys.listSessions'), []);
  const { run, problem } = useAction();
  const end = async (sessionId: string) => {
    await call('rootKeys.endSession', { sessionId });
    sessions.reload();
  };
  return (
    <>
      <h2>Signed in</h2>
      {problem}
      <Loaded of={sessions}>
        {(page) => (
          <Table
            label="Sessions"
            rows={page.sessions}
            id={({ sessionId }) => sessionId}
            empty="Nobody."
            columns={[
              {
                title: 'Root key',
                narrow: 'first',
                cell: ({ rootKeyId }) => <bdi>{names.get(rootKeyId) ?? rootKeyId}</bdi>,
              },
              { title: 'From', cell: ({ address }) => <code>{address}</code> },
              { title: 'Since', cell: ({ createdAt }) => <Time at={createdAt} /> },
              {
                title: 'Change',
                narrow: 'beside',
                cell: ({ sessionId, rootKeyId, address }) =>
                  may('root.*.update_root_key') && (
                    <button
                      type="button"
                      class="small"
                      aria-label={`End the session of ${names.get(rootKeyId) ?? rootKeyId} from ${address}`}
                      onClick={() => void run(() => end(sessionId))}
                    >
                      End
                    </button>
                  ),
              },
            ]}
          />
        )}
      </Loaded>
    </>
  );
}
