import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '#shared/process/clock.ts';
import { storedFields } from '#shared/protocol/records/key-record.ts';
import type { ChangeWriter } from '#shared/protocol/writer/writer.ts';
import { ApiError, unavailable } from '#shared/rules/errors.ts';
import { sourceOf } from '#shared/rules/ip-ranges.ts';
import { canBeSecret, hashSecret } from '#shared/rules/key-format.ts';
import type { Apis } from '../apis/apis.ts';
import type { BootstrapKeys } from '../callers/bootstrap-keys.ts';
import type { RootKeys } from '../callers/root-keys.ts';
import type { Keys } from '../keys/keys.ts';
import type { KeyView } from '../records/key-view.ts';
import { effectOf } from '../serve/call.ts';
import { namesOf } from '../serve/errors.ts';
import type { CallRecorder } from '../serve/ports.ts';
import type { RateLimits } from '../serve/rate-limits.ts';
import type { App } from '../serve/server.ts';
import { Turns } from '../serve/turns.ts';
import { REVOKE } from '../webhooks/events-of.ts';

export const REVOKE_PATH = '/oauth2/revoke';

const BODY_BYTES_MAX = 8192;
/** Calls of one address at the same time. */
const PER_ADDRESS = { atOnce: 4, waitingMax: 0 };
const DISABLED = { enabled: false };

interface RevocationParts {
  readonly bootstrapKeys: BootstrapKeys;
  readonly rootKeys: Pick<RootKeys, 'lookUp'>;
  readonly keys: Pick<Keys, 'lookUpSecret'>;
  readonly view: Pick<KeyView, 'get'>;
  readonly apis: Pick<Apis, 'get'>;
  readonly changeWriter: Pick<ChangeWriter, 'apply' | 'status'>;
  readonly audit: CallRecorder;
  readonly rates: RateLimits;
  readonly clock: Clock;
  readonly onRevoked: () => void;
}

/** The refusal of a request, in the form of RFC 7009. */
interface Refusal {
  readonly error: 'invalid_request' | 'unsupported_token_type';
  readonly error_description: string;
}

/**
 * Adds the path at which a holder revokes a key (RFC 7009). It is no operation: nobody needs a root key, because who has the
 * secret can do no more with it than the holder.
 */
export async function receiveRevocations(app: App, parts: RevocationParts): Promise<void> {
  const turns = new Turns(PER_ADDRESS);
  await app.register(async (scope) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser<string>(
      'application/x-www-form-urlencoded',
      { parseAs: 'string' },
      (_request, body, done) => done(null, { form: body }),
    );
    const admit = async (request: FastifyRequest, reply: FastifyReply) => {
      const turn = turns.take(sourceOf(addressOf(request)));
      if (turn === undefined)
        throw new ApiError('RATE_LIMITED', 'too many revocations at a time from this address');
      reply.raw.once('close', await turn);
    };
    const options = { bodyLimit: BODY_BYTES_MAX, schema: { hide: true }, config: { admit } };
    scope.post(REVOKE_PATH, options, async (request, reply) => {
      const { form } = Object(request.body) as { readonly form?: string };
      const refusal = await revoke(new URLSearchParams(form).getAll('token'), request, parts);
      return refusal ? reply.code(400).send(refusal) : {};
    });
  });
}

/** After a hang-up the connection has no address. */
const addressOf = ({ ip }: FastifyRequest): string => ip ?? 'unknown';

/** Disables the key with this secret, and resolves when that is complete. Rejects with SERVICE_UNAVAILABLE or RATE_LIMITED. */
async function revoke(
  tokens: readonly string[],
  request: FastifyRequest,
  parts: RevocationParts,
): Promise<Refusal | undefined> {
  const [token = ''] = tokens;
  if (tokens.length !== 1 || !canBeSecret(token))
    return refusal('invalid_request', 'token: required once in the form, the secret of a key');
  if (parts.bootstrapKeys.idOf(hashSecret(token)) !== undefined || (await parts.rootKeys.lookUp(token)))
    return refusal('unsupported_token_type', 'token: is a root key; delete it with rootKeys.deleteRootKey');
  const place = await parts.keys.lookUpSecret(token);
  const key = place && (await parts.view.get(place.apiId, place.keyId));
  if (!key) {
    // It is not valid, which is all that the caller asked for; but whoever guesses is counted.
    await parts.rates.countFailure(request);
    return undefined;
  }
  const { apiId, keyId, sequence } = key;
  if ((await parts.apis.get(apiId))?.selfRevocation !== true)
    return refusal(
      'unsupported_token_type',
      'token: holders may not revoke the keys of this API; ask its owner',
    );
  const state =
    key.enabled === false
      ? await parts.changeWriter.status(apiId, keyId, sequence, true)
      : await disable({ apiId, keyId }, request, parts);
  if (state && state.state !== 'complete')
    throw unavailable('the key is disabled, but not everywhere yet; send it again to wait for it');
  return undefined;
}

async function disable(
  on: { readonly apiId: string; readonly keyId: string },
  request: FastifyRequest,
  { changeWriter, audit, clock, onRevoked }: RevocationParts,
) {
  const by = { address: addressOf(request) };
  const event = { time: clock.wallMs(), ...namesOf(request), operation: REVOKE, by, on };
  let record: Promise<void> | undefined;
  try {
    return await changeWriter.apply(
      { ...on, operation: 'update', fields: storedFields(DISABLED) },
      undefined,
      (entry) => {
        onRevoked();
        record = audit.record('done', { ...event, outcome: 'OK', ...effectOf(entry, DISABLED) });
      },
    );
  } catch (error) {
    record ??= audit.record('done', { ...event, outcome: 'SERVICE_UNAVAILABLE', after: DISABLED });
    throw error;
  } finally {
    await record;
  }
}

const refusal = (error: Refusal['error'], description: string): Refusal => ({
  error,
  error_description: description,
});
