import type { KeyFields } from '#shared/contract/key-record.ts';
import type { Session } from '../../session.ts';
import { json, list } from '../../terminal/output.ts';
import { fieldTexts, numberText } from './key-fields.ts';

interface Verdict extends Partial<KeyFields> {
  readonly valid: boolean;
  readonly code: string;
  readonly keyId?: string;
  readonly apiId?: string;
  readonly remaining?: number;
  readonly identity?: object;
}

interface VerifyOptions {
  readonly api?: string;
  readonly cost?: number;
  readonly permissions?: string;
  readonly clientIp?: string;
}

/** Runs `keyfence keys verify`. If a verifier cannot decide yet, it asks again. */
export async function verifyKey(
  session: Session,
  key: string,
  { api, cost, permissions, clientIp }: VerifyOptions,
): Promise<void> {
  const verdict = await session.verdict<Verdict>({
    ...{ key, apiId: api, clientIp, ...(cost === undefined ? {} : { remaining: { cost } }) },
    ...(permissions === undefined ? {} : { authorization: { permissions } }),
  });
  session.print(verdict, () => {
    const { code, keyId, apiId, identity } = verdict;
    return list({
      ...{ code, keyId, apiId, ...fieldTexts(verdict) },
      ...{ identity: identity && json(identity), remaining: numberText(verdict.remaining) },
    });
  });
  if (!verdict.valid) session.end('NO');
}
