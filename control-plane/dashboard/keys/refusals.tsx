import { call } from '../api/client.ts';
import { KINDS } from '../api/verdicts.ts';
import { Loaded, useLoad } from '../parts/loading.tsx';
import { Table } from '../parts/table.tsx';
import { Time } from '../parts/time.tsx';

/** The latest refusals of a key. */
export function Refusals({ keyId }: { keyId: string }) {
  const refusals = useLoad(() => call('keys.listRefusals', { keyId }), [keyId]);
  return (
    <Loaded of={refusals}>
      {(page) => (
        <Table
          label="Last refusals"
          rows={page.refusals}
          id={({ requestId = '', time, verifierId }) => `${requestId} ${time} ${verifierId}`}
          empty="Not refused in the last seven days."
          columns={[
            { title: 'Time', narrow: 'first', cell: ({ time }) => <Time at={time} /> },
            {
              title: 'Why',
              narrow: 'beside',
              cell: ({ code, reason }) => (reason === 'address' ? 'wrong address' : nameOf(code)),
            },
            { title: 'From', cell: ({ clientIp = '–' }) => clientIp },
            { title: 'Route', cell: ({ route = '–' }) => <bdi>{route}</bdi> },
            { title: 'Request', cell: ({ requestId }) => (requestId ? <code>{requestId}</code> : '–') },
          ]}
        />
      )}
    </Loaded>
  );
}

const nameOf = (code: string): string =>
  Object.hasOwn(KINDS, code) ? KINDS[code as keyof typeof KINDS].name : code;
