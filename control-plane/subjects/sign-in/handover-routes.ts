import { Type } from 'typebox';
import { ApiError } from '#shared/rules/errors.ts';
import type { Sessions } from '../../core/callers/sessions.ts';
import { type Admission, admitted } from '../../core/serve/admission.ts';
import { callerOfSession } from '../../core/serve/browser-session.ts';
import type { App } from '../../core/serve/server.ts';
import type { Handovers } from './handovers.ts';

const PATH = '/dashboard/handover';
/** Maximum length of an encrypted secret in base64url: longer than the longest secret that Keyfence makes. */
const CIPHERTEXT_LENGTH_MAX = 1024;

/**
 * Serves links that show a secret once: a session of the dashboard puts the encrypted secret here, and whoever has the link
 * takes it. Taking is a POST, so that programs that look at links in messages do not use them up.
 */
export function serveHandovers(
  app: App,
  {
    sessions,
    handovers,
    ...admission
  }: Admission & { readonly sessions: Sessions; readonly handovers: Handovers },
): void {
  const body = Type.Object(
    { ciphertext: Type.String({ pattern: '^[\\w-]+$', minLength: 16, maxLength: CIPHERTEXT_LENGTH_MAX }) },
    { additionalProperties: false },
  );
  app.post(PATH, { schema: { hide: true, body } }, async (request) => {
    const caller = await admitted(admission, request, callerOfSession(request, sessions));
    await admission.rates.countCall(request, caller.id);
    return { id: await handovers.put(caller.id, request.body.ciphertext) };
  });
  const params = Type.Object({ id: Type.String({ pattern: '^[\\w-]{22}$' }) });
  app.post(`${PATH}/:id`, { schema: { hide: true, params } }, async (request) => {
    const ciphertext = await handovers.take(request.params.id);
    if (ciphertext === undefined) {
      await admission.rates.countFailure(request);
      throw new ApiError('NOT_FOUND', 'this link was used before, or is older than an hour');
    }
    return { ciphertext };
  });
}
