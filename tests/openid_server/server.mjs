// An OpenID Connect provider as a process: oidc-provider with one client and a few accounts, whose sign-in and consent
// are its own development pages. `node server.mjs PORT REDIRECT_URI CLIENT_SECRET ACCOUNTS`, ACCOUNTS being JSON: claims by
// login. Prints one line when it answers.
import { generateKeyPairSync } from 'node:crypto';
import Provider from 'oidc-provider';

const [port, redirect, secret, written] = process.argv.slice(2);
const accounts = JSON.parse(written);
const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: 'signoff',
    client_secret: secret,
    redirect_uris: [redirect],
    grant_types: ['authorization_code'],
    response_types: ['code'],
  }],
  jwks: { keys: [{ ...key, kid: 'tests', use: 'sig', alg: 'RS256' }] },
  cookies: { keys: ['a key of these tests'] },
  claims: { openid: ['sub', 'groups'], email: ['email', 'email_verified'], profile: ['name'] },
  // As most providers do: what the gateway asks for stands in the ID token.
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  findAccount: (context, id) => (id in accounts
    ? { accountId: id, claims: () => ({ sub: id, ...accounts[id] }) } : undefined),
});
provider.listen(Number(port), '127.0.0.1', () => console.log('ready'));
