import { verifierDocument } from './verifier-openapi.ts';

/** The verifier of `npm start`. */
const SERVER = { url: 'http://127.0.0.1:3001', description: 'the verifier of npm start, or yours' };

/**
 * Precedes the description of an operation that verifiers answer, whose "try it" button the page hides: a browser calls
 * only its own origin.
 */
const elsewhere = (
  path: string,
  body: object | readonly object[],
) => `A verifier answers this, not the control plane, so it cannot be tried from this page. It needs a root key only with VERIFY_ROOT_KEYS=required.
From a terminal, with the address of a verifier (that of \`npm start\` here):

    curl -s ${SERVER.url}${path} -H 'content-type: application/json' -d '${JSON.stringify(body)}'`;

/** Returns the paths that verifiers answer, by version of the interface, for the control plane's reference. */
export function byVerifiers() {
  const pathsBelow = (generation: string) =>
    Object.fromEntries(
      Object.entries(verifierDocument.paths).flatMap(([name, item]) => {
        if (!name.startsWith(generation) || !('post' in item)) return [];
        const { post } = item;
        const { example } = post.requestBody.content['application/json'];
        const body = name.endsWith('verifyKey') ? { key: 'YOUR_KEY' } : example;
        const description = `${elsewhere(name, body as object)}\n\n${post.description}`;
        return [[name, { post: { ...post, tags: ['verifier'], servers: [SERVER], description } }]];
      }),
    );
  // In the document of verifiers, the errors of version 2 have names of their own.
  const v2 = JSON.stringify(pathsBelow('/v2/')).replace(/(#\/components\/\w+\/\w+)V2"/g, '$1"');
  return { '/v1/': pathsBelow('/v1/'), '/v2/': JSON.parse(v2) as object };
}
