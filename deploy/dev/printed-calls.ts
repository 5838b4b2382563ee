const JSON_BODY = `-H 'content-type: application/json'`;

/** Shell commands that create a key at a control plane, and keep it as `$KEY` and `$KEY_ID`. */
export function createCalls(controlPlane: string, input: object): string {
  const field = (name: string) => `sed -n 's/.*"${name}":"\\([^"]*\\)".*/\\1/p'`;
  const create = adminCall(controlPlane, 'keys.createKey', `'${JSON.stringify(input)}'`);
  return `CREATED=$(${create}); echo "$CREATED"
  KEY=$(echo "$CREATED" | ${field('key')}); KEY_ID=$(echo "$CREATED" | ${field('keyId')})`;
}

/** Shell command that enables or disables `$KEY_ID`. */
export function enableCall(controlPlane: string, enabled: boolean): string {
  return `${adminCall(controlPlane, 'keys.updateKey', `"{\\"keyId\\":\\"$KEY_ID\\",\\"enabled\\":${enabled}}"`)}; echo`;
}

/** Shell command that verifies `$KEY`. */
export function verifyCall(verifier: string, more = ''): string {
  return `curl -s ${more}${verifier}/v1/keys.verifyKey ${JSON_BODY} -d "{\\"key\\":\\"$KEY\\"}"; echo`;
}

function adminCall(controlPlane: string, operation: string, body: string): string {
  return `curl -s ${controlPlane}/v1/${operation} -H "authorization: Bearer $ROOT_KEY" ${JSON_BODY} -d ${body}`;
}
