import type { Session } from '../../session.ts';
import { list, table } from '../../terminal/output.ts';

interface Explanation {
  readonly valid: boolean;
  readonly code: string;
  readonly keyId?: string;
  readonly rules: readonly { readonly rule: string; readonly passed: boolean; readonly detail: string }[];
}

interface ExplainOptions {
  readonly api?: string;
  readonly cost?: number;
  readonly permissions?: string;
  readonly clientIp?: string;
}

/** Runs `keyfence keys explain`. Exits like `keys verify`, but consumes nothing. */
export async function explainKey(
  session: Session,
  key: { readonly keyId: string } | { readonly key: string },
  { api, cost, permissions, clientIp }: ExplainOptions,
): Promise<void> {
  const input = { ...key, apiId: api, cost, permissions, clientIp };
  const explanation = await session.call<Explanation>('keys.explain', input);
  session.print(explanation, () => {
    const { code, keyId, rules } = explanation;
    const rows = table(rules, {
      rule: ({ rule }) => rule,
      passed: ({ passed }) => (passed ? 'yes' : 'NO'),
      detail: ({ detail }) => detail,
    });
    return `${list({ code, keyId })}\n\n${rows}`;
  });
  if (!explanation.valid) session.end('NO');
}
