import { type Agent, request } from 'undici';

// biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
export type Body = any;

/** Returns what sends calls by POST: a good answer's body; undefined = there was none. */
export const postBy =
  (agent: Agent) =>
  async (address: string, path: string, body: object, headers: object = {}): Promise<Body> => {
    try {
      const answer = await request(`${address}/v1/${path}`, {
        ...{ method: 'POST', dispatcher: agent, body: JSON.stringify(body) },
        headers: { 'content-type': 'application/json', ...headers },
      });
      const read: Body = await answer.body.json();
      return answer.statusCode === 200 ? read : undefined;
    } catch {
      return undefined;
    }
  };
