"""The services of Apprise that a receiver may name: those that are reached over HTTPS, e-mail, and plain web hooks.

Left out is what is on the operator's own machine (files, desktops, D-Bus, syslog), what needs a file of keys, what
uses another protocol, and what opens connections on its own.
"""

from __future__ import annotations

from typing import Final

SCHEMAS: Final = frozenset(
    {
        "46elks", "bark", "barks", "betterstack", "bulksms", "burstsms", "chanify", "clickatell", "clicksend",
        "d7sms", "dingtalk", "discord", "elks", "feishu", "firehydrant", "flock", "form", "forms", "freemobile",
        "gchat", "goalert", "goalerts", "gotify", "gotifys", "groupme", "guilded", "hassio", "hassios", "ifttt",
        "ilert", "incidentio", "infobip", "join", "json", "jsons", "kavenegar", "lark", "line", "mailersend",
        "mailgun", "mailto", "mailtos", "mastodon", "mastodons", "matrix", "matrixs", "misskey", "misskeys", "mmost",
        "mmosts", "msg91", "msgbird", "nctalk", "nctalks", "nexmo", "notifiarr", "notifico", "ntfy", "ntfys", "o365",
        "onesignal", "opsgenie", "pagertree", "parsep", "parseps", "plivo", "postmark", "pover", "prowl", "push",
        "pushdeer", "pushdeers", "pushme", "pushy", "qq", "resend", "revolt", "rocket", "rockets", "ryver", "schan",
        "sendgrid", "serwersms", "ses", "seven", "sfr", "signl4", "simplepush", "sinch", "slack", "smsmgr", "smtp2go",
        "sns", "sparkpost", "spike", "splunk", "spush", "squadcast", "strmlabs", "synology", "synologys", "telnyx",
        "tgram", "threema", "twilio", "twist", "victorops", "voipms", "vonage", "webex", "wecombot", "whatsapp",
        "workflow", "workflows", "wxteams", "xml", "xmls", "zulip",
    }
)  # fmt: skip
