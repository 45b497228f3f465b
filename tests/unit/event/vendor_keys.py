"""Keys in the shapes that vendors publish, generated from a seed: none was ever issued.

A shape is literal text with `<set length>` for random characters; `<u>` is a UUID. The keys exist only while
the tests run, so a secret scanner finds none in this repository.
"""

import random
import re
import string
from collections.abc import Iterator
from typing import Final

_HEX: Final = "0123456789abcdef"
_SETS: Final = {
    "d": string.digits, "h": _HEX, "H": _HEX.upper(), "l": string.ascii_letters,
    "a": string.ascii_lowercase + string.digits, "A": string.ascii_uppercase + string.digits,
    "w": string.ascii_letters + string.digits, "b": string.ascii_letters + string.digits + "_-",
    "B": string.ascii_letters + string.digits + "+/", "z": "023456789ACDEFGHJKLMNPQRSTUVWXYZ",
}  # fmt: skip

#: A name, and the shape that the vendor's documentation or its entry in a scanner's list gives.
_MARKED: Final = """
anthropic: sk-ant-api03-<b93>AA; anthropic admin: sk-ant-admin01-<b93>AA;
anthropic oauth: sk-ant-oat01-<b93>AA; openai: sk-<w20>T3BlbkFJ<w20>;
openai project: sk-proj-<b74>T3BlbkFJ<b74>; openai service: sk-svcacct-<b74>T3BlbkFJ<b74>;
openai admin: sk-admin-<b74>T3BlbkFJ<b74>; openrouter: sk-or-v1-<h64>; deepseek: sk-<h32>;
stability: sk-<w48>; langfuse: sk-lf-<u>; helicone: sk-helicone-<a7>-<a7>-<a7>-<a7>; elevenlabs: sk_<h48>;
groq: gsk_<w52>; xai: xai-<w80>; perplexity: pplx-<w48>; replicate: r8_<w37>; huggingface: hf_<l34>;
huggingface org: api_org_<l34>; cerebras: csk-<a48>; fireworks: fw_<w24>; together: tgp_v1_<b43>;
tavily: tvly-<w32>; tavily dev: tvly-dev-<w32>; langsmith: lsv2_pt_<h32>_<h10>;
langsmith service: lsv2_sk_<h32>_<h10>; pinecone: pcsk_<w6>_<w63>; nvidia: nvapi-<b64>; voyage: pa-<b43>;
jina: jina_<w60>; firecrawl: fc-<h32>; runpod: rpa_<A40><a6>; e2b: e2b_<h40>; llamacloud: llx-<w48>;
apify: apify_api_<w36>; browserbase: bb_live_<b27>; mem0: m0-<w40>; anyscale: esecret_<a26>;
zhipu: <h32>.<w16>; aws: AKIA<z16>; aws temporary: ASIA<z16>; aws bedrock: ABSK<B108>=; google: AIza<b35>;
google oauth: ya29.a0<b120>; google refresh: 1//0<b60>; google secret: GOCSPX-<b28>;
azure client: <w3>8Q~<b31>; azure devops: <w76>AZDO<w4>;
azure storage: DefaultEndpointsProtocol=https;AccountName=a;AccountKey=<B86>==; digitalocean: dop_v1_<h64>;
digitalocean oauth: doo_v1_<h64>; digitalocean refresh: dor_v1_<h64>; heroku: HRKU-AA<b58>; fly: fo1_<b43>;
fly macaroon: fm2_<B120>; vercel blob: vercel_blob_rw_<w16>_<w30>; netlify: nfp_<w36>; render: rnd_<w32>;
supabase: sbp_<h40>; supabase secret: sb_secret_<b22>_<b8>; planetscale: pscale_tkn_<b43>;
planetscale password: pscale_pw_<b43>; neon: napi_<a64>; cloudflare origin: v1.0-<h24>-<h146>;
alibaba: LTAI<w20>; tencent: AKID<w32>; yandex: AQVN<b36>; scaleway: SCW<A17>; vault: hvs.<b90>;
vault batch: hvb.<b140>; terraform: <w14>.atlasv1.<b67>; pulumi: pul-<h40>; doppler: dp.pt.<w43>;
doppler service: dp.st.prd.<w43>; infisical: st.<h24>.<h32>.<h32>; 1password: ops_eyJ<w250>;
1password secret: A3-<A6>-<A6>-<A5>-<A5>-<A5>-<A5>; age: AGE-SECRET-KEY-1<z58>; grafana cloud: glc_eyJ<w90>;
grafana service: glsa_<w32>_<h8>; grafana legacy: eyJrIjoi<w80>; new relic user: NRAK-<A27>;
new relic license: <h36>NRAL; new relic insert: NRII-<b32>; datadog app: ddapp_<w34>;
sentry org: sntrys_eyJ<w80>_<w43>; sentry user: sntryu_<h64>; posthog personal: phx_<w43>;
honeycomb: hcaik_01<a56>; dynatrace: dt0c01.<A24>.<A64>; launchdarkly: sdk-<u>; launchdarkly api: api-<u>;
axiom: xaat-<u>; sonarqube: sqp_<h40>; sonarqube user: squ_<h40>; github: ghp_<w36>;
github oauth: gho_<w36>; github user: ghu_<w36>; github server: ghs_<w36>; github refresh: ghr_<w76>;
github fine-grained: github_pat_<w22>_<w59>; gitlab: glpat-<b20>; gitlab deploy: gldt-<b20>;
gitlab runner: glrt-<b20>; gitlab trigger: glptt-<h40>; gitlab ci: glcbt-1a_<b20>;
gitlab agent: glagent-<b50>; gitlab oauth: gloas-<h64>; bitbucket: ATBB<w24><H8>;
bitbucket repository: ATCTT3xFfGN0<b180>=<H8>; atlassian: ATATT3xFfGF0<b180>=<H8>; trello: ATTA<h64><H8>;
npm: npm_<w36>; pypi: py%pi-AgEIcHlwaS5vcmc<b120>; rubygems: rubygems_<h48>; nuget: oy2<a43>;
crates: cio<w32>; docker: dckr_pat_<b27>; docker org: dckr_oat_<b32>; clojars: CLOJARS_<a60>;
artifactory: AKCp<w69>; circleci: CCIPAT_<w22>_<h40>; buildkite: bkua_<h40>; snyk: snyk_uat.<h8>.<b90>;
sourcegraph: sgp_<h16>_<h40>; postman: PMAK-<h24>-<h34>; readme: rdme_<a70>; figma: figd_<b43>;
linear: lin_api_<w40>; linear oauth: lin_oauth_<h64>; notion: ntn_<d11><w35>; notion legacy: secret_<w43>;
airtable: pat<w14>.<h64>; asana: 1/<d16>:<h32>; clickup: pk_<d8>_<A32>; contentful: CFPAT-<b43>;
prefect: pnu_<a36>; typeform: tfp_<b59>; segment: sgp_<w64>; mapbox: sk.eyJ<w80>.<b22>;
flutterwave: FLWSECK_TEST-<h32>-X; stripe: sk_live_<w99>; stripe test: sk_test_<w24>;
stripe restricted: rk_live_<w99>; stripe webhook: whsec_<w32>; paystack: sk_live_<h40>;
razorpay: rzp_live_<w14>; square: sq0atp-<b22>; square secret: sq0csp-<b43>; square access: EAAA<b60>;
braintree: access_token$production$<a16>$<h32>; plaid: access-production-<u>; shopify: shpat_<h32>;
shopify custom: shpca_<h32>; shopify shared: shpss_<h32>; shippo: shippo_live_<h40>; easypost: EZAK<w54>;
duffel: duffel_live_<b43>; lob: live_<h35>; frame.io: fio-u-<b64>; twilio: SK<h32>;
sendgrid: SG.<b22>.<b43>; mailgun: key-<h32>; mailgun new: <h32>-<h8>-<h8>; mailchimp: <h32>-us12;
brevo: xkeysib-<h64>-<w16>; resend: re_<w8>_<w24>; mailersend: mlsn.<h64>; telegram: <d10>:AA<b33>;
slack bot: xoxb-<d12>-<d12>-<w24>; slack user: xoxp-<d12>-<d12>-<d12>-<h32>;
slack app: xapp-1-A<A10>-<d13>-<h64>; slack refresh: xoxe-1-<w146>;
slack webhook: https://hooks.slack.com/services/T<A8>/B<A8>/<w24>; discord bot: MT<w24>.<b6>.<b38>;
discord webhook: https://discord.com/api/webhooks/<d18>/<b68>;
teams webhook: https://a.webhook.office.com/webhookb2/<u>@<u>/IncomingWebhook/<h32>/<u>;
zapier webhook: https://hooks.zapier.com/hooks/catch/<d7>/<a7>/; facebook: EAACEdEose0cBA<w100>;
twitter bearer: AAAAAAAAAAAAAAAAAAAAA<w80>; dropbox: sl.u.<b130>; intercom: dG9rO<w51>=;
hubspot: pat-na1-<u>; salesforce: 00D<w12>!<w96>; stytch: secret-live-<b43>=;
tailscale: tskey-auth-<w12>CNTRL-<w32>; tailscale api: tskey-api-<w12>CNTRL-<w32>; ngrok: 2<w26>_<w21>;
databento: db-<w29>; rapidapi: <h10>msh<h15>p1<h6>jsn<h12>; maxmind: <w6>_<w29>_mmk;
octopus deploy: API-<A26>; openshift: sha256~<b43>; databricks: dapi<h32>;
defined networking: dnkey-<b26>-<b52>; harness: pat.<b22>.<h24>.<w20>; intra42: s-s4t2ud-<h64>;
wakatime: waka_<u>; inngest: signkey-prod-<h64>; cal.com: cal_live_<h32>; trigger.dev: tr_prod_<w20>;
scalingo: tk-us-<b48>; cloudinary: cloudinary://<d15>:<b27>@name;
mongodb: mongodb+srv://app:<w20>@cluster0.abcde.mongodb.net/db;
sentry dsn: https://<h32>@o<d6>.ingest.sentry.io/<d7>; jwt: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx<w30>.<b43>
"""

#: Only a name distinguishes these from a hash, a UUID or any other random text.
_BARE: Final = """
aws secret: <B40>; cloudflare: <b40>; cohere: <w40>; mistral: <w32>; datadog: <h32>; wandb: <h40>;
linode: <h64>; heroku legacy: <u>; azure openai: <w84>; twilio token: <h32>; zendesk: <w40>; fastly: <b32>
"""


def vendor_keys(seed: int) -> dict[str, str]:
    """Return a key for each vendor's shape, by its name."""
    return dict(_keys(f"{_MARKED.strip()}; {_BARE}", random.Random(seed)))


def _keys(table: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    # A percent sign keeps a shape from being taken for a key, or a name for that of a host.
    for entry in re.split(r";\s", table.replace("%", "")):
        name, shape = entry.strip().split(": ")
        yield name, re.sub(r"<(\w)(\d*)>", lambda match: _random(match, rng), shape)


def _random(match: re.Match[str], rng: random.Random) -> str:
    if match[1] == "u":
        digits = "".join(rng.choices(_HEX, k=32))
        parts = (digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:])
        return "-".join(parts)
    chosen, length = _SETS[match[1]], int(match[2])
    kinds = [k for k in (string.digits, string.ascii_letters) if set(k) & set(chosen)]
    # A key with two or more kinds of characters practically always holds each of them.
    while True:
        text = "".join(rng.choices(chosen, k=length))
        if length < 8 or all(set(kind) & set(text) for kind in kinds):
            return text
