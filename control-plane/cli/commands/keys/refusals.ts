import type { ReportedRefusal } from '../../../redis/refusals.ts';
import { CliError } from '../../exit.ts';
import type { Session } from '../../session.ts';
import { list, table, time } from '../../terminal/output.ts';

/** Runs `keyfence keys refusals`: lists the refusals of a key, or finds that of a request. */
export async function showRefusals(session: Session, keyId?: string, requestId?: string): Promise<void> {
  if ((keyId === undefined) === (requestId === undefined))
    throw new CliError('USAGE', 'name a key, or a request with --request');
  if (requestId !== undefined) {
    const located = await session.call<{ apiId: string; keyId: string; refusal: ReportedRefusal }>(
      'verdicts.find',
      {
        requestId,
      },
    );
    const { refusal, ...about } = located;
    return session.print(located, () => list({ ...about, ...refusal, time: time(refusal.time) }));
  }
  const response = await session.call<{ refusals: ReportedRefusal[] }>('keys.listRefusals', { keyId });
  session.print(response, () =>
    table(response.refusals, {
      time: (refusal) => time(refusal.time),
      code: ({ code, reason }) => (reason ? `${code} (${reason})` : code),
      requestId: (refusal) => refusal.requestId,
      clientIp: ({ clientIp }) => clientIp,
      route: ({ route }) => route,
    }),
  );
}
